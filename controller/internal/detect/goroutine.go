package detect

import (
	"bytes"
	"fmt"
	"runtime"
	"strconv"
)

const (
	// MaxStack is how much of a goroutine's stack StackOf returns, in bytes.
	MaxStack = 32 << 10
	// firstDump and maxDump bound the buffer for the stacks of all goroutines. usualStack is
	// how much of it one takes, so that mostly they have to be stopped only once.
	firstDump  = 64 << 10
	maxDump    = 16 << 20
	usualStack = 1 << 10
)

// Goroutine names one goroutine of this process. Numbers are not used again. Zero names none.
type Goroutine uint64

// CurrentGoroutine returns the goroutine that calls it. It costs about a microsecond: a worker
// asks once, when it starts.
func CurrentGoroutine() Goroutine {
	var buffer [64]byte
	id, _ := goroutineOf(buffer[:runtime.Stack(buffer[:], false)])
	return id
}

// goroutineOf reads the first line of a stack: "goroutine 7 [running]:".
func goroutineOf(stack []byte) (id Goroutine, ok bool) {
	rest, ok := bytes.CutPrefix(stack, []byte("goroutine "))
	if !ok {
		return 0, false
	}
	digits, _, _ := bytes.Cut(rest, []byte(" "))
	n, err := strconv.ParseUint(string(digits), 10, 64)
	return Goroutine(n), err == nil
}

// StackOf returns the stack that g has now, at most MaxStack bytes of it: where a handler that
// does not return is waiting. It is empty when g has ended.
//
// It stops all goroutines while it writes down their stacks (some 15 ms where there are ten
// thousand of them), so it is for the rare case, and once per case. Where the stacks of all
// goroutines take more than 16 MiB, g may be among those that were cut off; then the text says so.
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
			continue // cut off, and there is room for more
		}
		stack := findStack(buffer[:n], g)
		if stack == nil && n == size {
			return fmt.Sprintf("(goroutine %d is not among those in the first %d bytes of all stacks)", g, n)
		}
		return string(stack)
	}
}

// findStack returns the part of a dump that is the stack of g, cut to MaxStack.
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
