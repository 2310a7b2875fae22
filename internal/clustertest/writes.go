package clustertest

import (
	"encoding/json"
	"regexp"
	"testing"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Write is one write in the records of a controller.
type Write struct {
	What    string // "patch Deployment/status"
	Key     kube.Key
	Outcome string // "done"
	Version string // the resource version after the write, if it is known
}

// Done is the outcome of a write that the API server performed; Rejected and DryRun are others.
const (
	Done     = "done"
	Rejected = "rejected"
	DryRun   = "dry run"
)

// Writes returns the writes of the latest run of key that wrote, from what Controller.Debug returns for the key.
func Writes(tb testing.TB, controller interface{ Debug(key string) (any, error) }, key kube.Key) (writes []Write) {
	tb.Helper()
	state, err := controller.Debug(key.String())
	if err != nil {
		tb.Fatal(err)
	}
	text, err := json.Marshal(state)
	if err != nil {
		tb.Fatal(err)
	}
	var shown struct{ Runs []struct{ Writes []string } }
	if err := json.Unmarshal(text, &shown); err != nil {
		tb.Fatal(err)
	}
	line := regexp.MustCompile(`^(\S+ \S+?)(?: in (\S+)| (?:(\S+)/)?(\S+))?: ` +
		`([^(]+?)(?: \((?:resource version (\S+)|.*)\))?$`)
	for _, run := range shown.Runs {
		for _, text := range run.Writes {
			m := line.FindStringSubmatch(text)
			if m == nil {
				tb.Fatalf("a write is recorded as %q", text)
			}
			writes = append(writes, Write{
				What: m[1], Key: kube.Key{Namespace: m[2] + m[3], Name: m[4]}, Outcome: m[5], Version: m[6],
			})
		}
		if len(writes) > 0 {
			return writes
		}
	}
	return nil
}
