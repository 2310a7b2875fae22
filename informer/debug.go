package informer

import (
	"encoding/json"
	"time"
)

// Debug returns Health, and ignores key. package manager serves it as JSON.
func (i *Informer[T]) Debug(string) (any, error) { return i.Health(), nil }

// MarshalJSON returns the state for people: durations and errors are texts, and zero fields are left out.
func (h Health) MarshalJSON() ([]byte, error) {
	state := struct {
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
	}{
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
	return json.Marshal(state)
}
