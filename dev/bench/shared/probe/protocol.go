// Package probe is the half of each measured program that is the same in all of them: it
// speaks with the orchestrator, counts what the handler sees, and measures the process.
//
// The protocol is one JSON object a line, commands on standard input and one answer to
// each on standard output.
package probe

import (
	"fmt"
	"strconv"
	"strings"
)

// Kinds of objects that are measured.
const (
	Pods      = "pods"
	Databases = "databases"
)

// ListNamespace is the namespace that the reads list; it has up to 1,000 objects.
const ListNamespace = "platform-batch"

// EventAnnotation is on each object that an event is about; see Mark.
const EventAnnotation = "bench.evenkeel.dev/event"

// Operations of a Command.
const (
	// OpSync starts the controller and waits until N objects were handled.
	OpSync = "sync"
	// OpExpect prepares for a burst of events; OpEvents waits until it was handled.
	OpExpect = "expect"
	OpEvents = "events"
	// OpReads measures reads of the cache.
	OpReads = "reads"
)

// Command is one line from the orchestrator.
type Command struct {
	Op string `json:"op"`
	// N is the number of objects.
	N int `json:"n,omitempty"`
	// Burst is the number of the burst of events that follows, Count how many events it
	// has, Keys over how many objects they go round.
	Burst int `json:"burst,omitempty"`
	Count int `json:"count,omitempty"`
	Keys  int `json:"keys,omitempty"`
	// HandlerMicros is how long each handler of an event waits.
	HandlerMicros int `json:"handlerMicros,omitempty"`
	// Millis is for how long each kind of read is repeated.
	Millis int `json:"millis,omitempty"`
}

// Answer is one line to the orchestrator. Fields that do not belong to the operation are
// zero.
type Answer struct {
	// Err is why the operation failed.
	Err string `json:"err,omitempty"`
	// Seconds is how long the operation took, CPUSeconds the process's CPU time in it.
	Seconds    float64 `json:"seconds,omitempty"`
	CPUSeconds float64 `json:"cpuSeconds,omitempty"`
	// HeapBytes is what the operation added to the heap, after two garbage collections.
	HeapBytes int64 `json:"heapBytes,omitempty"`
	// PeakRSSBytes is the process's peak so far.
	PeakRSSBytes int64 `json:"peakRSSBytes,omitempty"`
	// Runs is how often the handler was called in the operation.
	Runs int64 `json:"runs,omitempty"`
	// LatencyMicros has the percentiles of the time from the server's send to the start of
	// the handler: 50, 99 and 99.9.
	LatencyMicros []float64 `json:"latencyMicros,omitempty"`
	// GetNanos is the CPU time of one Get, ListNanos of one List, of objects that were read before, and FirstGetNanos
	// and FirstListNanos of objects that were not; Listed is how many objects a List returned. Zero where the library
	// gives no access to its cache.
	FirstGetNanos  float64 `json:"firstGetNanos,omitempty"`
	GetNanos       float64 `json:"getNanos,omitempty"`
	FirstListNanos float64 `json:"firstListNanos,omitempty"`
	ListNanos      float64 `json:"listNanos,omitempty"`
	Listed         int     `json:"listed,omitempty"`
}

// scramble and unscramble are inverse to each other as factors of 32-bit numbers.
const scramble, unscramble = 0x9e3779b1, 0x0e8b2f51

// NumberDigits returns the end of the UID of object number i: digits that look as random as
// the rest of a UID, so that numbers make the objects no easier to compress.
func NumberDigits(i int) string { return fmt.Sprintf("%08x", uint32(i)*scramble) }

// NumberOf returns the number of the object that has a UID.
func NumberOf(uid string) (int, error) {
	digits, err := strconv.ParseUint(uid[max(len(uid)-8, 0):], 16, 32)
	return int(uint32(digits) * unscramble), err
}

// StampWidth is the width of the time in a mark.
const StampWidth = 19

// Mark returns the value of EventAnnotation for event seq of a burst. It ends with the time
// of sending in nanoseconds since 1970, as StampWidth digits; the server fills them in.
func Mark(burst, seq int) string {
	return fmt.Sprintf("%03d-%08d-%0*d", burst, seq, StampWidth, 0)
}

// ParseMark reads what Mark wrote.
func ParseMark(mark string) (burst, seq int, sent int64, err error) {
	burstText, rest, _ := strings.Cut(mark, "-")
	seqText, sentText, _ := strings.Cut(rest, "-")
	if burst, err = strconv.Atoi(burstText); err != nil {
		return 0, 0, 0, err
	}
	if seq, err = strconv.Atoi(seqText); err != nil {
		return 0, 0, 0, err
	}
	sent, err = strconv.ParseInt(sentText, 10, 64)
	return burst, seq, sent, err
}
