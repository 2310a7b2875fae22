package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/evenkeel-go/evenkeel/bench/shared/probe"
)

// Results is everything that a run has found, and what it takes to understand it.
type Results struct {
	Date    time.Time `json:"date"`
	Seconds float64   `json:"seconds"`
	Options Options   `json:"options"`
	Machine Machine   `json:"machine"`
	// GoVersion is the compiler's, Versions the libraries', Kubernetes that of client-go, by
	// contestant (defaults only: the others are of the same module).
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

// Machine is what the run ran on.
type Machine struct {
	CPU     string `json:"cpu"`
	Cores   int    `json:"cores"`
	Memory  int64  `json:"memory"`
	System  string `json:"system"`
	LoadAvg string `json:"loadAvg"` // before the run
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
		Date: time.Now().UTC().Truncate(time.Minute), Options: o, Machine: thisMachine(),
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
	return median(r.Figures[metric][contestant])
}

// ratio returns Even Keel's figure divided by a peer's.
func (r *Results) ratio(metric, peer string) (float64, bool) {
	own, ok := r.figure(metric, evenKeel)
	other, found := r.figure(metric, peer)
	if !ok || !found || other == 0 {
		return 0, false
	}
	return own / other, true
}

// median returns the middle of values, or the mean of the two in the middle. There is none of
// no values.
func median(values []float64) (float64, bool) {
	if len(values) == 0 {
		return math.NaN(), false
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle], true
	}
	return (sorted[middle-1] + sorted[middle]) / 2, true
}

func readResults(path string) (*Results, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r Results
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("read results %s: %w", path, err)
	}
	return &r, nil
}

func (r *Results) write(path string) error {
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
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

func thisMachine() Machine {
	m := Machine{Cores: runtime.NumCPU(), CPU: runtime.GOARCH, System: runtime.GOOS}
	if line := lineOf("/proc/cpuinfo", "model name"); line != "" {
		m.CPU = line
	}
	var kilobytes int64
	if _, err := fmt.Sscan(lineOf("/proc/meminfo", "MemTotal"), &kilobytes); err == nil {
		m.Memory = kilobytes << 10
	}
	var name syscall.Utsname
	if err := syscall.Uname(&name); err == nil {
		var release []byte
		for _, c := range name.Release {
			if c == 0 {
				break
			}
			release = append(release, byte(c))
		}
		version, _, _ := strings.Cut(string(release), "-")
		m.System = "Linux " + version
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.LoadAvg = strings.Join(strings.Fields(string(load))[:3], " ")
	}
	return m
}

// lineOf returns what follows "name:" in a file of /proc.
func lineOf(path, name string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), ":")
		if strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
