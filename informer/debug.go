package informer

import "time"

// Debug returns Health as a value for encoding/json, and ignores key. package manager serves it.
func (i *Informer[T]) Debug(string) (any, error) { return debugStateOf(i.Health()), nil }

func (u untyped[T]) Debug() any { return debugStateOf(u.informer.Health()) }

// debugState is the JSON of Debug: durations and errors are texts, and zero fields are left out.
type debugState struct {
	Informer        string     `json:"informer"`
	Retrieves       string     `json:"retrieves"`
	Running         bool       `json:"running"`
	Synced          bool       `json:"synced"`
	Optional        bool       `json:"optional,omitempty"`
	Degraded        bool       `json:"degraded,omitempty"`
	ResourceVersion string     `json:"resourceVersion,omitempty"`
	Objects         int        `json:"objects"`
	Bytes           int64      `json:"bytes"`
	Received        int64      `json:"received,omitempty"`
	Staleness       string     `json:"staleness,omitempty"`
	LastEvent       *time.Time `json:"lastEvent,omitempty"`
	Error           string     `json:"error,omitempty"`
	ErrorSince      *time.Time `json:"errorSince,omitempty"`
}

func debugStateOf(h Health) debugState {
	state := debugState{
		Informer: h.Informer, Retrieves: h.Retrieves, Running: h.Running, Synced: h.Synced, Optional: h.Optional,
		Degraded: h.Degraded, ResourceVersion: h.ResourceVersion, Objects: h.Objects, Bytes: h.Bytes,
		Received: h.Received,
	}
	if h.Staleness > 0 {
		state.Staleness = h.Staleness.String()
	}
	if !h.LastEvent.IsZero() {
		state.LastEvent = &h.LastEvent
	}
	if h.Err != nil {
		state.Error, state.ErrorSince = h.Err.Error(), &h.ErrSince
	}
	return state
}
