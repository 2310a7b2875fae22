package probe

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"time"
)

// Options configures the program's run.
type Options struct {
	// Server is the URL of the API server.
	Server string
	// Kind is Pods or Databases.
	Kind string
	// Best is true for the library at its best, false for its defaults.
	Best bool
	// Workers is how many handlers may run at the same time.
	Workers int
	// Observer must be called for every run of a handler.
	Observer *Observer
}

// Reader reads from the cache of a running controller.
type Reader struct {
	// Get returns something computed from the object's fields.
	Get func(key Key) (int, error)
	// List reads all objects of a namespace and returns their number.
	List func(namespace string) (int, error)
}

// Start starts a controller that runs until ctx ends. A failure of the controller later on is
// sent to failed. The Reader is nil for a library that gives no access to its cache.
type Start func(ctx context.Context, options Options, failed chan<- error) (*Reader, error)

// Main is the whole of a measured program's main: it obeys commands until its standard
// input ends.
func Main(start Start) {
	server := flag.String("server", "", "URL of the API server")
	kind := flag.String("kind", Pods, "pods or databases")
	best := flag.Bool("best", false, "the library at its best in place of its defaults")
	workers := flag.Int("workers", 4, "handlers at the same time")
	flag.Parse()
	p := &program{
		start:   start,
		options: Options{Server: *server, Kind: *kind, Best: *best, Workers: *workers},
		failed:  make(chan error, 1),
	}
	ctx, stop := context.WithCancel(context.Background())
	err := p.obey(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type program struct {
	start   Start
	options Options
	failed  chan error

	reader     *Reader
	observer   *Observer
	burst      *burst
	burstStart usage
	runsBefore int64
}

func (p *program) obey(ctx context.Context) error {
	out := json.NewEncoder(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var c Command
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return fmt.Errorf("read command %q: %w", lines.Text(), err)
		}
		answer, err := p.do(ctx, c)
		if err != nil {
			answer = Answer{Err: err.Error()}
		}
		if err := out.Encode(answer); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (p *program) do(ctx context.Context, c Command) (Answer, error) {
	switch c.Op {
	case OpSync:
		return p.sync(ctx, c)
	case OpExpect:
		if p.observer == nil {
			return Answer{}, errors.New("events before sync")
		}
		runtime.GC() // every burst begins at the same point of the collector's cycle
		p.runsBefore = p.observer.runs.Load()
		p.burst = p.observer.expect(c)
		p.burstStart = usageNow()
		return Answer{}, nil
	case OpEvents:
		return p.events()
	case OpReads:
		return p.reads(c)
	}
	return Answer{}, fmt.Errorf("unknown operation %q", c.Op)
}

func (p *program) sync(ctx context.Context, c Command) (Answer, error) {
	p.observer = newObserver(c.N)
	p.options.Observer = p.observer
	heap, begin := heapAfterGC(), usageNow()
	var err error
	if p.reader, err = p.start(ctx, p.options, p.failed); err != nil {
		return Answer{}, err
	}
	if err := p.wait(p.observer.synced); err != nil {
		return Answer{}, err
	}
	var a Answer
	p.observer.atSync.since(begin, &a)
	if a.PeakRSSBytes, err = peakRSS(); err != nil {
		return Answer{}, err
	}
	a.HeapBytes = heapAfterGC() - heap
	a.Runs = p.observer.runs.Load()
	return a, nil
}

func (p *program) events() (Answer, error) {
	if p.burst == nil {
		return Answer{}, errors.New("events were not announced")
	}
	if err := p.wait(p.burst.done); err != nil {
		return Answer{}, err
	}
	var a Answer
	p.burst.atDone.since(p.burstStart, &a)
	a.Runs = p.observer.runs.Load() - p.runsBefore
	a.LatencyMicros = percentiles(p.burst.latencies, 50, 99, 99.9)
	p.burst = nil
	p.observer.burst.Store(nil)
	return a, nil
}

// reads measures first reads of objects, and then reads of the same objects again.
func (p *program) reads(c Command) (Answer, error) {
	if p.reader == nil {
		return Answer{}, nil
	}
	var a Answer
	total := time.Duration(c.Millis) * time.Millisecond
	keys, next := p.observer.keys, 0
	get := func() error {
		next++
		_, err := p.reader.Get(keys[next%len(keys)])
		return err
	}
	list := func() (err error) {
		a.Listed, err = p.reader.List(ListNamespace)
		return err
	}
	for _, read := range []struct {
		do           func() error
		first        int // the number of calls that read something for the first time
		nanos, again *float64
	}{{get, len(keys), &a.FirstGetNanos, &a.GetNanos}, {list, 1, &a.FirstListNanos, &a.ListNanos}} {
		runtime.GC()
		var err error
		if *read.nanos, err = cpuTime(read.first, read.do); err != nil {
			return Answer{}, err
		}
		if err := repeat(warmUp, read.do); err != nil {
			return Answer{}, err
		}
		if *read.again, err = medianTime(total, read.do); err != nil {
			return Answer{}, err
		}
	}
	return a, nil
}

// warmUp is the time for which objects are read before their repeated reads are measured: in shorter ones a part of them
// was still decoded at each read.
const warmUp = 3 * time.Second

// repeat calls do until the time is over.
func repeat(total time.Duration, do func() error) error {
	for begin := time.Now(); time.Since(begin) < total; {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// medianTime repeats do for about the total time, in batches, and returns the CPU time of the process in nanoseconds
// that do needs in the median batch, that of the garbage collector included: a moment in which the machine does
// something else does not count.
func medianTime(total time.Duration, do func() error) (float64, error) {
	const batches = 15
	var times []int64
	once, err := wallTime(do)
	if err != nil {
		return 0, err
	}
	for range batches {
		nanos, err := cpuTime(max(1, int(total/batches/max(once, 1))), do)
		if err != nil {
			return 0, err
		}
		times = append(times, int64(nanos*1000))
	}
	return percentiles(times, 50)[0], nil
}

// wallTime returns the time of one call.
func wallTime(do func() error) (time.Duration, error) {
	begin := time.Now()
	err := do()
	return time.Since(begin), err
}

// cpuTime calls do count times, and returns the CPU time of the process for each call in nanoseconds.
func cpuTime(count int, do func() error) (float64, error) {
	begin := usageNow()
	for range count {
		if err := do(); err != nil {
			return 0, err
		}
	}
	return float64(usageNow().cpu-begin.cpu) / float64(count), nil
}

// wait waits for done or the controller's failure. There is no timeout: the orchestrator
// has one, and ends the process.
func (p *program) wait(done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case err := <-p.failed:
		if err == nil {
			err = errors.New("the controller ended")
		}
		return err
	}
}
