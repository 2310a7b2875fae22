package probe

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// usage is what the process has used at one moment.
type usage struct {
	at  time.Time
	cpu time.Duration
}

func usageNow() usage {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return usage{at: time.Now()}
	}
	return usage{at: time.Now(), cpu: time.Duration(r.Utime.Nano() + r.Stime.Nano())}
}

// since sets the times of a from u to now.
func (u usage) since(start usage, a *Answer) {
	a.Seconds = u.at.Sub(start.at).Seconds()
	a.CPUSeconds = (u.cpu - start.cpu).Seconds()
}

// heapAfterGC returns the bytes of live objects on the heap. It collects twice: a sync.Pool
// gives up its content only then.
func heapAfterGC() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// peakRSS returns the process's VmHWM. getrusage's maximum will not do: it is inherited
// from the process that started this one.
func peakRSS() (int64, error) {
	file, err := os.Open("/proc/self/status")
	if err != nil {
		return 0, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), "VmHWM:"); ok {
			var kilobytes int64
			_, err := fmt.Sscan(value, &kilobytes)
			return kilobytes << 10, err
		}
	}
	return 0, fmt.Errorf("no VmHWM in /proc/self/status: %w", lines.Err())
}
