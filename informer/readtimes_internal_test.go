package informer

import (
	"fmt"
	"log/slog"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Handlers that read each new object several times at once, and never again, do not evict the objects that are read all
// the time.
func TestObjectsReadAtOnceReplaceFew(t *testing.T) {
	t.Parallel()
	for _, every := range []time.Duration{time.Second, 5 * time.Second, 20 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			const hot, rounds = 900, 20
			s := newShelf(t, 1<<20, hot+10*hot)
			for range 6 {
				for n := range hot {
					s.read(n)
				}
				time.Sleep(time.Second)
			}
			hits, next := 0, 0
			for range rounds {
				for n := range hot {
					if s.read(n) {
						hits++
					}
					time.Sleep(every / hot)
					if n%5 == 0 {
						for range 4 {
							s.read(hot + next%(10*hot))
						}
						next++
					}
				}
			}
			if hits < rounds*hot*85/100 {
				t.Errorf("read every %v: %d of %d reads found their object", every, hits, rounds*hot)
			}
		})
	}
}

// Objects that are read more often than those that fill the budget are kept after a while.
func TestObjectsReadMoreOftenAreKept(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ others, often time.Duration }{
		{250 * time.Millisecond, 5 * time.Millisecond}, {3 * time.Second, time.Second}, {40 * time.Second, 12 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			const others, often = 2000, 10
			s := newShelf(t, 1<<20, others+often)
			for range 4 {
				for n := range others {
					s.read(n)
				}
				time.Sleep(test.others)
			}
			hits, reads, other := 0, 0, 0
			steps := int(test.others / test.often)
			for step := range 60 * steps {
				for n := range often {
					reads++
					if s.read(others + n) {
						hits++
					}
				}
				for ; other < (step+1)*others/steps; other++ {
					s.read(other % others)
				}
				time.Sleep(test.often)
			}
			if hits < reads*8/10 {
				t.Errorf("read every %v, and others every %v: %d of %d reads found them", test.often, test.others, hits, reads)
			}
		})
	}
}

// An object that another goroutine has read since a read began is not idle.
func TestSlowReadDoesNotReplaceLaterReads(t *testing.T) {
	t.Parallel()
	e, now := &entry{}, ticksOf(time.Now())
	for later := range ticks(slowRead) {
		e.read.Store(uint32(now + later))
		if e.isIdle(reading{now: now, ago: 10, equal: true}) {
			t.Errorf("an object that was read %d ticks later is idle for %d ticks", later, now.since(now+later))
		}
	}
	e.read.Store(uint32(now - 50))
	if !e.isIdle(reading{now: now, ago: 10}) {
		t.Error("an object that was not read for 50 ticks is not idle")
	}
}

// Objects that together fit into the budget are all kept.
func TestLastPartOfBudgetIsUsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const objects = 100
		s := newShelf(t, 1<<20, objects)
		readAll := func(rounds int) {
			for range rounds {
				for n := range objects {
					s.read(n)
				}
				time.Sleep(200 * time.Millisecond)
			}
		}
		readAll(6)
		s.decoded.setBudget(s.use.bytes.Load() + 100)
		readAll(200)
		if n := len(s.decoded.clock); n != objects {
			t.Errorf("%d of %d objects are kept", n, objects)
		}
	})
}

// Of several goroutines that decode a state at once, the first one keeps it.
func TestStateIsKeptOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(t, 1<<20, 1)
		ref, _ := s.store.Get(kube.KeyOf(s.object(0)))
		k := readKey{ref.Store(), reflect.TypeFor[*corev1.ConfigMap](), ref.KeyInState()}
		var readings []reading
		for range 5 {
			_, r, err := s.decoded.find(k, ref.Kept, false)
			if err != nil {
				t.Fatal(err)
			}
			readings = append(readings, r)
		}
		var first *entry
		for n, r := range readings[2:] {
			s.decoded.keep(k, r, &s.use, ref.Kept, s.object(0), slog.New(slog.DiscardHandler))
			if first == nil {
				first = s.decoded.clock[0]
			}
			if kept := s.decoded.clock[0]; kept != first || kept.read.Load() == 0 {
				t.Errorf("keep %d: replaced %t, read %s", n+1, kept != first, fmt.Sprint(kept.read.Load()))
			}
		}
	})
}
