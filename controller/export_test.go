package controller

import "github.com/evenkeel-go/evenkeel/kube"

// The states behind the texts of Explain and Debug.

func (c *Controller[T]) Explained(key kube.Key) explanation { return c.explain(key) }

func (c *Controller[T]) Queued(limit int) []queueEntry { return c.queued(limit) }

func (r RunRecord) WriteRecords() []write { return r.writes }

// WithWrites returns the record of a run with n recorded writes, and more that were dropped.
func (r RunRecord) WithWrites(n, dropped int) RunRecord {
	r.writes, r.writesDropped = make([]write, n), dropped
	return r
}

type WriteOutcome = writeOutcome

const (
	WriteDone     = writeDone
	WriteNoChange = writeNoChange
	WriteDryRun   = writeDryRun
	WriteRejected = writeRejected
	WriteUnknown  = writeUnknown
)

func KeyOf[K comparable](encoded kube.Key) (K, error) { return keyOf[K](encoded) }
