package interruptions

import (
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evenkeel-go/evenkeel/internal/testlog"
	"github.com/evenkeel-go/evenkeel/kube"
)

// crashed returns a copy of dir, as a process leaves it that ends now.
func crashed(t *testing.T, dir string) string {
	t.Helper()
	copied := t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return copied
}

func open(t *testing.T, dir string) (f *File, log string) {
	t.Helper()
	var logs testlog.Buffer
	f, err := Open(dir, "test", slog.New(slog.NewTextHandler(&logs, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f, logs.String()
}

func begin(t *testing.T, f *File, keys ...kube.Key) (slots []*Slot) {
	t.Helper()
	for _, key := range keys {
		slot, err := f.Begin(key)
		if err != nil {
			t.Fatal(err)
		}
		slots = append(slots, slot)
	}
	return slots
}

func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCounts(t *testing.T, f *File, want map[kube.Key]int) {
	t.Helper()
	if got := f.Counts(); !maps.Equal(got, want) {
		t.Errorf("interrupted keys: %v, want %v", got, want)
	}
}

func TestKeysInWorkAreCountedAfterEachInterruption(t *testing.T) {
	t.Parallel()
	node := kube.Key{Name: "node"}
	web := kube.Key{Namespace: "shop", Name: "web"}
	longest := kube.Key{Namespace: strings.Repeat("n", 63), Name: strings.Repeat("o", 253)}
	odd := kube.Key{Namespace: "a", Name: "b/c\x00d"}
	dir := t.TempDir()
	f, _ := open(t, dir)
	do(t, f.SetShutdown(false))
	slots := begin(t, f, web, node, longest, odd)
	do(t, f.End(slots[0]))
	begin(t, f, kube.Key{Name: strings.Repeat("x", slotSize)}) // too long: not recorded
	f, log := open(t, crashed(t, dir))
	wantCounts(t, f, map[kube.Key]int{node: 1, longest: 1, odd: 1})
	if log != "" {
		t.Error(log)
	}
	do(t, f.SetShutdown(false))
	begin(t, f, node)
	do(t, f.Remove(longest))
	f, _ = open(t, crashed(t, filepath.Dir(f.table)))
	wantCounts(t, f, map[kube.Key]int{node: 2, odd: 1})
}

// TestKeysWithAnyBytesAreCounted checks keys that no object has, but a controller without a primary kind may have.
func TestKeysWithAnyBytesAreCounted(t *testing.T) {
	t.Parallel()
	keys := []kube.Key{
		{Namespace: "a\x00b", Name: "c"},
		{Namespace: "a", Name: "b\x00c"},
		{Name: "a/b"},
		{Namespace: "a", Name: "b"},
		{Namespace: "a/b"},
		{Namespace: "\xff", Name: "\xfe%2F"},
		{Namespace: "\xfe", Name: "\xfe/"},
		{Name: "\ufffd"},
		{Name: "two\nlines \"quoted\""},
		{},
	}
	dir, want := t.TempDir(), map[kube.Key]int{}
	for process := range 3 {
		f, log := open(t, dir)
		if log != "" {
			t.Errorf("log of process %d: %s", process, log)
		}
		wantCounts(t, f, want)
		do(t, f.SetShutdown(false))
		begin(t, f, keys...)
		for _, key := range keys {
			want[key]++
		}
		dir = crashed(t, dir)
	}
	f, _ := open(t, dir)
	for _, key := range keys {
		do(t, f.Remove(key))
		delete(want, key)
		wantCounts(t, f, want)
	}
}

func TestKeysInWorkDuringShutdownAreNotCounted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f, _ := open(t, dir)
	begin(t, f, kube.Key{Name: "a"}) // before the first term
	wantAfter := func(want map[kube.Key]int) {
		t.Helper()
		next, _ := open(t, crashed(t, dir))
		wantCounts(t, next, want)
	}
	wantAfter(map[kube.Key]int{})
	do(t, f.SetShutdown(false))
	wantAfter(map[kube.Key]int{{Name: "a"}: 1})
	do(t, f.SetShutdown(true))
	wantAfter(map[kube.Key]int{})
}

func TestSlotsAreReused(t *testing.T) {
	t.Parallel()
	f, _ := open(t, t.TempDir())
	for range 100 {
		slots := begin(t, f, kube.Key{Name: "a"}, kube.Key{Name: "b"})
		for _, slot := range slots {
			do(t, f.End(slot))
		}
	}
	if info, err := f.file.Stat(); err != nil || info.Size() > 3*slotSize {
		t.Errorf("size %d, error %v", info.Size(), err)
	}
}

func TestDamagedFilesAreReplaced(t *testing.T) {
	t.Parallel()
	a, b := kube.Key{Name: "a"}, kube.Key{Name: "b"}
	for name, test := range map[string]struct {
		damage func(keys, table []byte) (damagedKeys, damagedTable []byte)
		want   map[kube.Key]int
		log    string
	}{
		"header": {
			func(keys, table []byte) ([]byte, []byte) { return append([]byte("X"), keys...), table },
			map[kube.Key]int{a: 1},
			"no valid header",
		},
		"header cut off": {
			func(keys, table []byte) ([]byte, []byte) { return keys[:3], table },
			map[kube.Key]int{a: 1},
			"no valid header",
		},
		"slot": {
			func(keys, table []byte) ([]byte, []byte) { keys[slotSize+slotHeader]++; return keys, table },
			map[kube.Key]int{a: 1, b: 1},
			"offset 512",
		},
		"length": {
			func(keys, table []byte) ([]byte, []byte) { keys[slotSize+2] = 0xff; return keys, table },
			map[kube.Key]int{a: 1, b: 1},
			"offset 512",
		},
		"slot cut off": {
			func(keys, table []byte) ([]byte, []byte) { return keys[:2*slotSize+1], table },
			map[kube.Key]int{a: 2},
			"offset 1024",
		},
		"table": {
			func(keys, table []byte) ([]byte, []byte) { return keys, table[1:] },
			map[kube.Key]int{a: 1, b: 1},
			"interrupted.json",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			f, _ := open(t, dir)
			f.counts[a] = 1
			do(t, f.writeTable())
			do(t, f.SetShutdown(false))
			begin(t, f, a, b)
			dir = crashed(t, dir)
			keysFile, tableFile := filepath.Join(dir, "test.keys"), filepath.Join(dir, "test.interrupted.json")
			keys, err := os.ReadFile(keysFile)
			do(t, err)
			table, err := os.ReadFile(tableFile)
			do(t, err)
			keys, table = test.damage(keys, table)
			do(t, os.WriteFile(keysFile, keys, 0o600))
			do(t, os.WriteFile(tableFile, table, 0o600))
			f, log := open(t, dir)
			wantCounts(t, f, test.want)
			if strings.Count(log, "damaged state") != 1 || !strings.Contains(log, test.log) {
				t.Errorf("log: %s", log)
			}
			f, log = open(t, crashed(t, dir))
			if wantCounts(t, f, test.want); log != "" {
				t.Errorf("log of the next start: %s", log)
			}
		})
	}
}

func TestFilesAreLocked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	logger := slog.New(slog.DiscardHandler)
	f, err := Open(dir, "test", logger)
	do(t, err)
	if _, err := Open(dir, "test", logger); err == nil || !strings.Contains(err.Error(), "which another controller or process may use") {
		t.Errorf("second Open: %v", err)
	}
	other, err := Open(dir, "te/st: *", logger)
	do(t, err)
	do(t, other.Close())
	do(t, f.Close())
	f, err = Open(dir, "test", logger)
	do(t, err)
	do(t, f.Close())
}

func BenchmarkRun(b *testing.B) {
	f, err := Open(b.TempDir(), "test", slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // nothing depends on it
	key := kube.Key{Namespace: "shop", Name: "web"}
	b.ReportAllocs()
	for b.Loop() {
		slot, err := f.Begin(key)
		if err != nil {
			b.Fatal(err)
		}
		if err := f.End(slot); err != nil {
			b.Fatal(err)
		}
	}
}
