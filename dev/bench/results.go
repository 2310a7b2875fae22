package main

import (
	"fmt"
	"time"

	"github.com/evenkeel-go/evenkeel/dev/bench/internal/machine"
	"github.com/evenkeel-go/evenkeel/dev/bench/internal/result"
	"github.com/evenkeel-go/evenkeel/dev/bench/shared/probe"
)

// Results contains the results of a run, and the information that is needed to interpret them.
type Results struct {
	Date    time.Time       `json:"date"`
	Seconds float64         `json:"seconds"`
	Options Options         `json:"options"`
	Machine machine.Machine `json:"machine"`
	// GoVersion is the compiler's, Versions the libraries', Kubernetes that of client-go, by
	// contestant (defaults only: the others are of the same module, or have Even Keel's versions).
	GoVersion  string            `json:"goVersion"`
	Versions   map[string]string `json:"versions"`
	Kubernetes map[string]string `json:"kubernetes"`
	// ObjectBytes is the mean size of the objects, by kind and format.
	ObjectBytes map[string]float64 `json:"objectBytes"`
	// Requests is how each contestant lists and watches, by kind and contestant.
	Requests map[string][]string `json:"requests"`
	// Figures are the values of all rounds, by metric and contestant.
	Figures  map[string]map[string][]float64 `json:"figures"`
	Failures []Failure                       `json:"failures,omitempty"`
}

// Failure is a measurement that could not be made.
type Failure struct {
	Contestant string `json:"contestant"`
	Kind       string `json:"kind"`
	Objects    int    `json:"objects"`
	Round      int    `json:"round"`
	Err        string `json:"err"`
}

func newResults(o Options) *Results {
	return &Results{
		Date: time.Now().UTC().Truncate(time.Minute), Options: o, Machine: machine.This(),
		Versions: make(map[string]string), Kubernetes: make(map[string]string),
		ObjectBytes: make(map[string]float64), Requests: make(map[string][]string),
		Figures: make(map[string]map[string][]float64),
	}
}

func (r *Results) add(metric, contestant string, value float64) {
	if r.Figures[metric] == nil {
		r.Figures[metric] = make(map[string][]float64)
	}
	r.Figures[metric][contestant] = append(r.Figures[metric][contestant], value)
}

// figure returns the median of all rounds.
func (r *Results) figure(metric, contestant string) (float64, bool) {
	return result.Median(r.Figures[metric][contestant])
}

// ratio returns Even Keel's figure divided by a peer's; both are at their defaults, or both at their best.
func (r *Results) ratio(metric string, peer contestant) (float64, bool) {
	return r.ratioOf(metric, peer.counterpart(), peer.name)
}

// ratioOf returns a contestant's figure divided by another one's.
func (r *Results) ratioOf(metric, contestant, by string) (float64, bool) {
	own, ok := r.figure(metric, contestant)
	other, found := r.figure(metric, by)
	if !ok || !found || other == 0 {
		return 0, false
	}
	return own / other, true
}

// suffixOf is how the metrics of a kind end.
func suffixOf(kind string) string {
	if kind == probe.Pods {
		return "_pod"
	}
	return "_cr"
}

// sized is a metric at one number of objects.
func sized(metric string, n int) string { return fmt.Sprintf("%s_%d", metric, n) }
