package localcluster

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestConfigDefaults(t *testing.T) {
	t.Setenv(envKubernetesVersion, "")
	got := Config{}.withDefaults()
	if got.Progress == nil {
		t.Error("Progress has no default")
	}
	got.Progress = nil
	if diff := cmp.Diff(Config{ReadyTimeout: DefaultReadyTimeout}, got); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	if !(Config{Nodes: 1}).withDefaults().Controllers {
		t.Error("Nodes does not imply Controllers")
	}
}

func TestValidateReportsAllMistakes(t *testing.T) {
	t.Parallel()
	_, err := Start(t.Context(), Config{
		Nodes: -1, Port: 70000, ReadyTimeout: -1, KubernetesVersion: "1.12", APIServerArgs: []string{"--v=1", "v=1"},
		Users: []User{{}, {Name: "a=b"}, {Name: "c", Groups: []string{"d,e"}}},
	})
	for _, want := range []string{"Nodes is -1", "Port is 70000", "ReadyTimeout is -1ns", `KubernetesVersion is "1.12"`, `APIServerArgs[1] is "v=1"`, "Users[0] has no Name", "Users[1]", "Users[2]"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
}

func TestConfigArguments(t *testing.T) {
	t.Setenv(envKubernetesVersion, "")
	tests := map[string]struct {
		config Config
		want   []string
	}{
		"zero value": {
			Config{},
			[]string{"up", "--control", "--ready-timeout=1m0s"},
		},
		"everything": {
			Config{
				Nodes: 2, SecondServer: true, Dir: "/d", Port: 1234, ReadyTimeout: 5 * time.Second, KubernetesVersion: "1.37",
				FeatureGates: map[string]bool{"B": false, "A": true},
				Users:        []User{{Name: "u", Groups: []string{"g", "h"}}, {Name: "v"}}, APIServerArgs: []string{"--v=1", "--w"},
			},
			[]string{
				"up", "--control", "--ready-timeout=5s", "--controllers", "--nodes=2", "--second-server", "--dir=/d", "--port=1234",
				"--feature-gates=A=true,B=false", "--kubernetes-version=1.37", "--apiserver-arg=--v=1", "--apiserver-arg=--w", "--user=u=g,h", "--user=v=",
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, test.config.withDefaults().arguments()); diff != "" {
				t.Errorf("arguments (-want +got):\n%s", diff)
			}
		})
	}
}

func TestProgressLinesAreTimed(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := newProgress(&out)
	p.show(1, "compiled", "packages") // too early for a line
	p.shown = p.shown.Add(-progressEvery)
	p.total = 40
	p.show(2, "compiled", "packages")
	if got, want := out.String(), "localcluster: compiled 2 of 40 packages, 0s\n"; got != want {
		t.Errorf("progress is %q, want %q", got, want)
	}
}

func TestIsStep(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]bool{
		"k8s.io/api/core/v1":                  true,
		"runtime":                             true,
		"go: downloading k8s.io/api v0.36.3":  true,
		"go: updates to go.mod needed":        false,
		"# example.com/broken":                false,
		"./main.go:3:1: undefined: something": false,
		"\t./main.go:4:2: other declaration":  false,
		"":                                    false,
	} {
		if got := isStep(line); got != want {
			t.Errorf("isStep(%q) = %v, want %v", line, got, want)
		}
	}
}
