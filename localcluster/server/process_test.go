package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLongLogIsTruncated(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ size, wantFrom int64 }{
		"new": {0, 0}, "short": {100, 100}, "long": {maxLog + 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "log")
			writeFile(t, path, "")
			if err := os.Truncate(path, test.size); err != nil {
				t.Fatal(err)
			}
			log, from, err := openLog(path)
			if err != nil {
				t.Fatal(err)
			}
			defer log.Close()
			info, err := log.Stat()
			if err != nil || from != test.wantFrom || info.Size() != from {
				t.Errorf("continues at %d of %d bytes, %v; want %d", from, info.Size(), err, test.wantFrom)
			}
		})
	}
}

func TestLastLogHasOnlyThisRun(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	writeFile(t, path, "before\n"+strings.Repeat("line\n", 10_000)+"the end\n")
	for name, test := range map[string]struct {
		from  int64
		want  string
		lines int
	}{
		"long":    {7, "line\n  the end", 15},
		"short":   {7 + 5*9_998, "; its last log lines:\n  line\n  line\n  the end", 3},
		"nothing": {1 << 20, "; it logged nothing", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := (&process{logPath: path, logFrom: test.from}).lastLog()
			if !strings.HasSuffix(got, test.want) || strings.Contains(got, "before") || strings.Count(got, "\n") != test.lines {
				t.Errorf("got %q, want %d lines with %q at the end", got, test.lines, test.want)
			}
		})
	}
}
