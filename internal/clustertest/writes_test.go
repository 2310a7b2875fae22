package clustertest_test

import (
	"slices"
	"testing"

	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
)

type debugged struct{}

func (debugged) Debug(string) (any, error) {
	return map[string]any{"runs": []map[string]any{{}, {"writes": []string{
		"create Part in ns: rejected (409 Conflict)", "patch Widget/status ns/a: no change (resource version 7)",
		"delete Node n: done", "deletecollection Part in ns: unknown",
	}}}}, nil
}

func TestWritesReadsTheTextsOfRecords(t *testing.T) {
	t.Parallel()
	want := []clustertest.Write{
		{"create Part", kube.Key{Namespace: "ns"}, clustertest.Rejected, ""},
		{"patch Widget/status", kube.Key{Namespace: "ns", Name: "a"}, "no change", "7"},
		{"delete Node", kube.Key{Name: "n"}, clustertest.Done, ""},
		{"deletecollection Part", kube.Key{Namespace: "ns"}, "unknown", ""},
	}
	if got := clustertest.Writes(t, debugged{}, kube.Key{}); !slices.Equal(got, want) {
		t.Errorf("writes %+v, want %+v", got, want)
	}
}
