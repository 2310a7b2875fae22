package apiserver

import (
	"bufio"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// lines reads a watch in the background. The returned function returns the lines since its last call, when nothing moves.
func lines(tb testing.TB, events *bufio.Reader, body io.Closer) func() string {
	tb.Helper()
	received := make(chan string, 100)
	go func() { // ends when the body is closed, at the end of the test
		defer close(received)
		for {
			line, err := events.ReadString('\n')
			if err == io.EOF {
				line = "EOF"
			}
			if line != "" {
				received <- line
			}
			if err != nil {
				return
			}
		}
	}()
	tb.Cleanup(func() { _ = body.Close() })
	return func() string {
		synctest.Wait()
		var text strings.Builder
		for len(received) > 0 {
			text.WriteString(<-received)
		}
		return text.String()
	}
}

func versionsOf(text string) string {
	var versions []string
	for _, part := range strings.Split(text, `"resourceVersion":"`)[1:] {
		version, _, _ := strings.Cut(part, `"`)
		versions = append(versions, version)
	}
	return strings.Join(versions, " ")
}

func TestHeldWatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		configMaps := schema.GroupResource{Resource: "configmaps"}
		watch := func(parameters string) func() string {
			events, body := openWatch(t, t.Context(), s, configMapsPath+"?watch=true&allowWatchBookmarks=true"+parameters)
			return lines(t, events, body)
		}
		expect := func(what string, received func() string, want string) {
			t.Helper()
			if got := versionsOf(received()); got != want {
				t.Errorf("%s: versions %q, want %q", what, got, want)
			}
		}
		early := watch("&resourceVersion=1000")
		s.HoldWatches(configMaps)
		putObjects(t, s, 2) // 1001, 1002
		later := watch("&resourceVersion=1000")
		initial := watch("&sendInitialEvents=true&resourceVersionMatch=NotOlderThan")
		expect("the watch from before", early, "")
		expect("a watch from an earlier version", later, "")
		expect("a streamed list", initial, "1001 1002 1002")
		s.Compact()
		expect("after a compaction", early, "")
		s.SendBookmarks(configMaps)
		expect("no bookmark", early, "")
		expect("no bookmark after a streamed list", initial, "")
		s.HoldWatches(schema.GroupResource{Resource: "secrets"})
		s.HoldWatches() // changes nothing for watches that are held already
		expect("held twice", early, "")
		mustSend(t, s, "DELETE", configMapsPath+"/cm-0001", "")
		if got := s.OpenWatches(configMaps); got != 3 || s.OpenWatches() != 3 {
			t.Errorf("%d open watches, want 3", got)
		}
		s.ReleaseWrite(configMaps)
		expect("the next write, which is not in the history any more", early, "1001")
		s.ReleaseWatches(configMaps)
		expect("released", early, "1002 1003")
		expect("released", later, "1001 1002 1003")
		expect("released", initial, "1003")
		s.CloseWatches(schema.GroupResource{Resource: "secrets"})
		expect("watches of others closed", early, "")
		s.CloseWatches(configMaps)
		if got := early() + later() + initial(); got != "EOFEOFEOF" {
			t.Errorf("after CloseWatches: %s", got)
		}
	})
}

func TestReleaseOneWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		events, body := openWatch(t, t.Context(), s, configMapsPath+"?watch=true")
		received := lines(t, events, body)
		s.ReleaseWrite() // of watches that are not held: no effect
		s.HoldWatches()
		putObjects(t, s, 3)
		for _, want := range []string{"1001", "1002", "1003", ""} {
			s.ReleaseWrite()
			if got := versionsOf(received()); got != want {
				t.Errorf("versions %q, want %q", got, want)
			}
		}
	})
}

// The watch from a version in the future gets no bookmark, whose version would be lower than the requested one.
func TestBookmarkOfFutureVersion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		events, body := openWatch(t, t.Context(), s, configMapsPath+"?watch=true&allowWatchBookmarks=true&resourceVersion=1002")
		received := lines(t, events, body)
		for i, want := range []string{"", "", "1002", "1003 1003"} {
			if i > 0 {
				s.HoldWatches()
				mustSend(t, s, "POST", configMapsPath, `{"metadata":{"generateName":"cm-"}}`)
				s.ReleaseWatches()
			}
			s.SendBookmarks()
			if got := versionsOf(received()); got != want {
				t.Errorf("at version %d: versions %q, want %q", 1000+i, got, want)
			}
		}
	})
}

func TestRestore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		putObjects(t, s, 2)
		backup := s.Fork()
		mustSend(t, s, "DELETE", configMapsPath+"/cm-0001", "")
		lost := mustSend(t, s, "POST", configMapsPath, `{"metadata":{"name":"lost"}}`)
		events, body := openWatch(t, t.Context(), s, configMapsPath+"?watch=true&resourceVersion=1004")
		received := lines(t, events, body)
		s.HoldWatches()
		s.Restore(backup)
		if got := received(); got != "EOF" {
			t.Errorf("a watch after a restore: %s, want its end", got)
		}
		if text := mustSend(t, s, "GET", configMapsPath, ""); versionsOf(text) != "1002 1001 1002" {
			t.Errorf("the restored objects: %s", text)
		}
		second := mustSend(t, s, "POST", configMapsPath, `{"metadata":{"name":"lost"}}`)
		if versionsOf(second) != "1003" || uidOf(second) == uidOf(lost) {
			t.Errorf("an object created after a restore: %s, want the next version, and another uid than %s", second, lost)
		}
		if text := mustSend(t, s, "GET", configMapsPath+"?watch=true&resourceVersion=1001", ""); !strings.Contains(text, `"code":410`) {
			t.Errorf("a watch from a version before the restored one: %s, want 410", text)
		}
		if text := mustSend(t, backup, "GET", configMapsPath, ""); versionsOf(text) != "1002 1001 1002" {
			t.Errorf("the backup changed: %s", text)
		}
	})
}

func uidOf(text string) string {
	_, rest, _ := strings.Cut(text, `"uid":"`)
	uid, _, _ := strings.Cut(rest, `"`)
	return uid
}
