package detect

import (
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
)

// blockForTest is the function that the tests look for in the stack.
func blockForTest(started chan<- Goroutine, release <-chan struct{}) {
	started <- CurrentGoroutine()
	<-release
}

func TestStackOf(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		started, release := make(chan Goroutine), make(chan struct{})
		go blockForTest(started, release) // the second synctest.Wait waits for it
		g := <-started
		synctest.Wait() // until it blocks
		if g == 0 || g == CurrentGoroutine() {
			t.Fatalf("the goroutine is said to be %d, the test's %d", g, CurrentGoroutine())
		}
		stack := StackOf(g)
		if !strings.Contains(stack, "blockForTest") || !strings.Contains(stack, "chan receive") {
			t.Errorf("the stack of a blocked goroutine: %s", stack)
		}
		if strings.Contains(stack, "\n\n") || strings.Count(stack, "goroutine ") > 2 { // the header and "created by"
			t.Errorf("more than one stack: %s", stack)
		}
		close(release)
		synctest.Wait()
		if stack := StackOf(g); stack != "" {
			t.Errorf("the stack of a goroutine that has ended: %s", stack)
		}
	})
}

func TestStackOfUnknownGoroutine(t *testing.T) {
	t.Parallel()
	if stack := StackOf(0); stack != "" {
		t.Errorf("got %s", stack)
	}
}

func deep(n int, started chan<- Goroutine, release <-chan struct{}) {
	if n == 0 {
		blockForTest(started, release)
		return
	}
	deep(n-1, started, release)
	runtime.KeepAlive(n)
}

// TestLongStacks checks that long dumps are read completely up to a limit, and that a long stack is truncated.
func TestLongStacks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// The runtime limits each stack to 100 frames, so a long dump needs many goroutines.
		started, release := make(chan Goroutine), make(chan struct{})
		var last Goroutine
		for range 50 {
			go deep(200, started, release) // the end of the bubble waits for it
			last = <-started
		}
		synctest.Wait()
		if stack := StackOf(last); !strings.Contains(stack, "blockForTest") || len(stack) > MaxStack {
			t.Errorf("got %d bytes: %s", len(stack), stack)
		}
		if stack := stackIn(last, 1<<10); !strings.Contains(stack, "first 1024 bytes") {
			t.Errorf("with too small a buffer: %s", stack)
		}
		close(release)
	})
}

func TestFindStack(t *testing.T) {
	t.Parallel()
	long := "goroutine 12 gp=0x1 m=0 mp=0x2 [running]:\n" + strings.Repeat("main.f()\n", MaxStack/9)
	dump := []byte("goroutine 1 [running]:\nmain.a()\n\n" + long + "\ngoroutine 123 [select, 5 minutes]:\nmain.c()\n")
	for id, want := range map[Goroutine]string{
		1: "goroutine 1 [running]:\nmain.a()", 123: "goroutine 123 [select, 5 minutes]:\nmain.c()", 2: "", 23: "",
		12: long[:MaxStack-4] + "\n...",
	} {
		if got := string(findStack(dump, id)); got != want {
			t.Errorf("goroutine %d: got %d bytes, want %d: %.100s", id, len(got), len(want), got)
		}
	}
}
