package detect

import (
	"bytes"
	"fmt"
	"runtime"
	"strconv"
)

const (
	// MaxStack is the maximum length of the stack that StackOf returns, in bytes.
	MaxStack = 32 << 10
	// firstDump and maxDump are the minimum and the maximum size of the buffer for the stacks of all goroutines.
	// usualStack is the usual size of one goroutine's stack in it, so that the goroutines are usually stopped only
	// once.
	firstDump  = 64 << 10
	maxDump    = 16 << 20
	usualStack = 1 << 10
)

// Goroutine identifies a goroutine of this process. Numbers are not reused. Zero means no goroutine.
type Goroutine uint64

// CurrentGoroutine returns the calling goroutine. It costs about a microsecond: a worker calls it once, when it
// starts.
func CurrentGoroutine() Goroutine {
	var buffer [64]byte
	id, _ := goroutineOf(buffer[:runtime.Stack(buffer[:], false)])
	return id
}

// goroutineOf parses the first line of a stack: "goroutine 7 [running]:".
func goroutineOf(stack []byte) (id Goroutine, ok bool) {
	rest, ok := bytes.CutPrefix(stack, []byte("goroutine "))
	if !ok {
		return 0, false
	}
	digits, _, _ := bytes.Cut(rest, []byte(" "))
	n, err := strconv.ParseUint(string(digits), 10, 64)
	return Goroutine(n), err == nil
}

// StackOf returns the current stack of g, at most MaxStack bytes: it shows where a handler that does not return is
// blocked. It is empty if g has ended.
//
// StackOf stops all goroutines while it writes their stacks (some 15 ms for ten thousand goroutines), so call it
// rarely and once per case. If the stacks of all goroutines take more than 16 MiB, the stack of g may be cut off;
// StackOf then returns a text that reports this.
func StackOf(g Goroutine) string {
	return stackIn(g, maxDump)
}

func stackIn(g Goroutine, limit int) string {
	if g == 0 {
		return ""
	}
	for size := min(max(firstDump, runtime.NumGoroutine()*usualStack), limit); ; size = min(2*size, limit) {
		buffer := make([]byte, size)
		n := runtime.Stack(buffer, true)
		if n == size && size < limit {
			continue // truncated, and the buffer may still grow
		}
		stack := findStack(buffer[:n], g)
		if stack == nil && n == size {
			return fmt.Sprintf("(goroutine %d is not among those in the first %d bytes of all stacks)", g, n)
		}
		return string(stack)
	}
}

// findStack returns the stack of g in a dump, cut to MaxStack.
func findStack(dump []byte, g Goroutine) []byte {
	for stack := range bytes.SplitSeq(dump, []byte("\n\n")) {
		if id, ok := goroutineOf(stack); !ok || id != g {
			continue
		}
		stack = bytes.TrimRight(stack, "\n")
		if len(stack) > MaxStack {
			const end = "\n..."
			stack = append(stack[:MaxStack-len(end):MaxStack-len(end)], end...)
		}
		return stack
	}
	return nil
}
