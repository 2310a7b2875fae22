package localcluster

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
)

func TestStartErrors(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		binary string
		want   []string
	}{
		"no binary":                  {filepath.Join(t.TempDir(), "missing"), []string{"starting", "missing", "no such file"}},
		"the binary exits":           {program(t, "fake-broken"), []string{"fake-broken", "exit status 3", "disk failure"}},
		"the supervisor reports why": {program(t, "fake-failing"), []string{"starting the cluster: port 1 is in use"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Start(t.Context(), Config{Binary: test.binary, Progress: io.Discard})
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("the error lacks %q: %v", want, err)
				}
			}
		})
	}
}

func TestStartEndsWithContext(t *testing.T) {
	t.Parallel()
	reason := errors.New("cancelled by the test")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	_, err := Start(ctx, Config{Binary: program(t, "fake-silent"), Progress: io.Discard})
	if !errors.Is(err, reason) {
		t.Errorf("got %v, want the context's cause", err)
	}
}

func TestServerEndIsReported(t *testing.T) {
	t.Parallel()
	cluster, err := Start(t.Context(), Config{Binary: program(t, "fake-dying"), Progress: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.User(t.Context(), ""); err == nil {
		t.Error("User accepted an empty name")
	}
	const want = "apiserver ended by itself"
	if err := cluster.Kill(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Kill() = %v, want %q", err, want)
	}
	if err := cluster.Stop(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Stop() = %v, want %q", err, want)
	}
	if err := cluster.Stop(); err != nil {
		t.Errorf("second Stop() = %v", err)
	}
	if err := cluster.Restart(t.Context()); !errors.Is(err, errStopped) {
		t.Errorf("Restart() after Stop() = %v, want %v", err, errStopped)
	}
}

func TestUnexpectedOutputIsShown(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := &supervisor{progress: &out, pending: map[int]chan event{}}
	failure := s.readEvents(strings.NewReader("panic: oh\n" + `{"event":"note","message":"hello"}` + "\n" + `{"event":"reply","id":7}` + "\n" + `{"event":"failed","error":"why"}`))
	if failure != "why" {
		t.Errorf("failure is %q", failure)
	}
	if got, want := out.String(), "localcluster: unexpected output: panic: oh\nlocalcluster: hello\n"; got != want {
		t.Errorf("progress is %q, want %q", got, want)
	}
}
