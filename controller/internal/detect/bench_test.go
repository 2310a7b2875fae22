package detect

import (
	"fmt"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// BenchmarkWrote measures the cost of a write: the first and the second write of an object, the first write of an
// object when the table is full, and a write of a suspect.
func BenchmarkWrote(b *testing.B) {
	now := time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)
	w := newWorld(b)
	const objects = 20_000
	steps := make([]Step, objects)
	for i := range steps {
		key := kube.Key{Namespace: "shop", Name: fmt.Sprint("web-", i)}
		after := &wire.Object{Key: key, UID: "1", ResourceVersion: fmt.Sprint(i)}
		steps[i] = Step{Kind: site, Object: key, After: after, Causes: []Cause{w.cause()}}
	}
	b.Run("first of many objects", func(b *testing.B) {
		h := NewHotLoops(4096, 0)
		i := 0
		b.ReportAllocs()
		for b.Loop() {
			s := &steps[i%objects]
			h.Wrote(s.Object, s, now)
			i++
		}
	})
	b.Run("first and second", func(b *testing.B) {
		h := NewHotLoops(4096, 0)
		var states [2][objects]wire.Object
		for i := range steps {
			states[0][i], states[1][i] = *steps[i].After, *steps[i].After
			states[1][i].ResourceVersion = fmt.Sprint(objects + i)
		}
		i := 0
		b.ReportAllocs()
		for b.Loop() {
			s := &steps[i/2%objects]
			s.After = &states[i%2][i/2%objects]
			h.Wrote(s.Object, s, now)
			i++
		}
	})
	b.Run("no write", func(b *testing.B) {
		h := NewHotLoops(4096, 0)
		s := &steps[0]
		s.Before = s.After
		b.ReportAllocs()
		for b.Loop() {
			h.Wrote(s.Object, s, now)
		}
	})
	b.Run("of a suspect", func(b *testing.B) {
		w := newWorld(b)
		w.runs(Cause{})
		large := fields{}
		for i := range 100 {
			large[fmt.Sprint("field-", i)] = fields{"name": fmt.Sprint("value of ", i), "count": i}
		}
		w.put(site, shopWeb, fields{"spec": large})
		var writes []Step
		for i := range dullLimit {
			before, after := w.put(site, shopWeb, fields{"status": i})
			writes = append(writes, Step{Kind: site, Object: shopWeb, Before: before, After: after, Run: 1})
		}
		b.SetBytes(int64(len(writes[0].After.Bytes)))
		b.ReportAllocs()
		h := w.h
		i := 0
		for b.Loop() {
			if i == len(writes) {
				h, i = NewHotLoops(4096, 0), 0
			}
			h.Wrote(shopWeb, &writes[i], now)
			i++
		}
	})
}

func (w *world) cause() Cause {
	return Cause{Changed: true, Kind: site, Object: shopWeb, ResourceVersion: "1"}
}

// BenchmarkChanged measures the cost of an event without any suspect, and with suspects other than its key.
func BenchmarkChanged(b *testing.B) {
	w := newWorld(b)
	change := Step{Kind: site, Object: shopWeb, Before: &wire.Object{}, After: &wire.Object{}, Manager: "kubectl"}
	b.Run("no suspects", func(b *testing.B) {
		for b.Loop() {
			w.h.Changed(shopWeb, &change, w.now)
		}
	})
	for i := range 100 {
		w.h.follow(&track{key: kube.Key{Namespace: "other", Name: fmt.Sprint(i)}})
	}
	key := shopWeb
	b.Run("Suspect, of another than 100 suspects", func(b *testing.B) {
		for b.Loop() {
			w.h.Suspect(key)
		}
	})
	b.Run("another than 100 suspects", func(b *testing.B) {
		for b.Loop() {
			w.h.Changed(key, &change, w.now)
		}
	})
	b.Run("Pause without episodes", func(b *testing.B) {
		for b.Loop() {
			w.h.Pause(key, w.now)
		}
	})
}

func BenchmarkCurrentGoroutine(b *testing.B) {
	for b.Loop() {
		CurrentGoroutine()
	}
}

func BenchmarkRepeats(b *testing.B) {
	r := NewRepeats()
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		r.Allow(shopWeb, "update the status of Site shop/web: conflict", now)
	}
}
