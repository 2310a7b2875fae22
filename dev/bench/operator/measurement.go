package main

import (
	"fmt"
	"strings"
)

// Measurement is what one phase of one program has cost.
type Measurement struct {
	// Seconds is how long the phase took; see method.txt for where each phase begins and ends.
	Seconds float64 `json:"seconds"`
	// Requests and Failures are counted by "verb resource"; Failures are responses of 400 and above, with the code in
	// front.
	Requests map[string]int `json:"requests"`
	Failures map[string]int `json:"failures,omitempty"`
	// Sent and Received are bytes of bodies.
	Sent     int64 `json:"sent"`
	Received int64 `json:"received"`
	// CPU is the program's CPU time in seconds, PeakRSS its peak of resident memory in bytes.
	CPU     float64 `json:"cpu"`
	PeakRSS int64   `json:"peakRSS"`
	// Handled is how often the record of a WebApp was ensured, which each run of the handler does once.
	Handled int `json:"handled"`
	// Changes is the number of spec changes, P50, P99 and Max the seconds until the child showed the change.
	Changes int     `json:"changes,omitempty"`
	P50     float64 `json:"p50,omitempty"`
	P99     float64 `json:"p99,omitempty"`
	Max     float64 `json:"max,omitempty"`
	// Left is what should have been gone, or shown, within the phase's time limit, and was not.
	Left string `json:"left,omitempty"`
	// LoadAvg are the machine's load averages after the phase.
	LoadAvg string `json:"loadAvg"`
}

// requestCount returns the number of all requests.
func (m Measurement) requestCount() int {
	sum := 0
	for _, n := range m.Requests {
		sum += n
	}
	return sum
}

// conflicts returns the number of responses with code 409.
func (m Measurement) conflicts() int {
	sum := 0
	for name, n := range m.Failures {
		if strings.HasPrefix(name, "409 ") {
			sum += n
		}
	}
	return sum
}

func delayText(m Measurement) string {
	text := ""
	if m.Changes > 0 {
		text = fmt.Sprintf(", %d changes, p50 %.0f ms, p99 %.0f ms", m.Changes, 1000*m.P50, 1000*m.P99)
	}
	if m.Left != "" {
		text += ", LEFT: " + m.Left
	}
	return text
}

func difference(before, now map[string]int) map[string]int {
	result := make(map[string]int)
	for name, n := range now {
		if n -= before[name]; n > 0 {
			result[name] = n
		}
	}
	return result
}
