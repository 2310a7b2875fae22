package apiserver

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/dev/bench/shared/database"
	"github.com/evenkeel-go/evenkeel/dev/bench/shared/probe"
)

// firstVersion is the resourceVersion before the first object's.
const firstVersion = 100_000_000

// maker makes the objects of one kind.
type maker struct {
	typeOf
	object func(i int) metav1.Object
	// changed is object i as event seq of a burst shows it.
	changed func(i, burst, seq int) metav1.Object
	// bookmark is an object with nothing but the given metadata.
	bookmark func(metav1.ObjectMeta) any
}

// corpus is all objects of one kind in one format, and their history since the last burst
// of events was prepared. The formats of one kind are independent: an event of one does not
// appear in the other. So no object is encoded in a format that no client reads.
type corpus struct {
	maker  maker
	format Format

	mu      sync.Mutex
	version uint64        // guarded by mu: of the latest change
	floor   uint64        // guarded by mu: watches can start here, not before
	objects [][]byte      // guarded by mu: encoded, ordered by key
	numbers []int         // immutable: the maker's number of each object
	log     []change      // guarded by mu: what came after floor
	wake    chan struct{} // guarded by mu: closed at the next change
	next    []change      // guarded by mu: prepared, not yet sent
}

// change is one event. Its fields do not change.
type change struct {
	version  uint64
	position int
	object   []byte
	stamp    int // where in object the time of sending belongs
}

// newCorpus makes and encodes n objects.
func newCorpus(m maker, f Format, n int) (*corpus, error) {
	c := &corpus{maker: m, format: f, version: firstVersion + 3*uint64(n) + 1000, wake: make(chan struct{})}
	c.floor = c.version
	type made struct {
		key    string
		number int
		object []byte
	}
	all := make([]made, n)
	err := parallel(n, func(i int) error {
		obj := m.object(i)
		obj.SetResourceVersion(strconv.FormatUint(firstVersion+3*uint64(i), 10))
		object, err := encode(obj, f)
		all[i] = made{key: obj.GetNamespace() + "/" + obj.GetName(), number: i, object: object}
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b made) int { return cmp.Compare(a.key, b.key) })
	c.objects, c.numbers = make([][]byte, n), make([]int, n)
	for i := range all {
		if i > 0 && all[i].key == all[i-1].key {
			return nil, fmt.Errorf("two objects have the key %s", all[i].key)
		}
		c.objects[i], c.numbers[i] = all[i].object, all[i].number
	}
	return c, nil
}

// parallel calls do for each i below n on two goroutines, and waits for them.
func parallel(n int, do func(i int) error) error {
	const workers = 2
	var wg sync.WaitGroup
	errs := make([]error, workers)
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n && errs[w] == nil; i += workers {
				errs[w] = do(i)
			}
		})
	}
	wg.Wait()
	return cmp.Or(errs...)
}

// snapshot returns all objects as they are at the returned version.
func (c *corpus) snapshot() (objects [][]byte, version uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.objects), c.version
}

// prepare encodes a burst of count events over keys objects in turn, and forgets the
// history before.
func (c *corpus) prepare(burst, count, keys int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if keys <= 0 || keys > len(c.objects) || count < keys {
		return fmt.Errorf("%d events over %d keys of %d objects", count, keys, len(c.objects))
	}
	positions := rand.New(rand.NewPCG(uint64(burst), uint64(count))).Perm(len(c.objects))[:keys]
	next := make([]change, count)
	err := parallel(count, func(seq int) error {
		position := positions[seq%keys]
		version := c.version + 1 + uint64(seq)
		obj := c.maker.changed(c.numbers[position], burst, seq)
		obj.SetResourceVersion(strconv.FormatUint(version, 10))
		object, err := encode(obj, c.format)
		mark := probe.Mark(burst, seq)
		at := bytes.Index(object, []byte(mark))
		if err == nil && at < 0 {
			err = fmt.Errorf("no mark %s in the encoded object", mark)
		}
		next[seq] = change{version: version, position: position, object: object, stamp: at +
			len(mark) - probe.StampWidth}
		return err
	})
	if err != nil {
		return err
	}
	c.next, c.log, c.floor = next, nil, c.version
	return nil
}

// push sends the prepared events: rate of them a second, or all at once when rate is zero.
func (c *corpus) push(ctx context.Context, rate float64) error {
	begin := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for sent := 0; ; {
		due := 1 << 30
		if rate > 0 {
			due = 1 + int(time.Since(begin).Seconds()*rate)
		}
		n, left := c.release(due - sent)
		if sent += n; left == 0 {
			return nil
		}
		timer.Reset(time.Until(begin.Add(time.Duration(float64(sent) / rate * 1e9))))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// release makes up to n prepared events happen.
func (c *corpus) release(n int) (released, left int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n = max(min(n, len(c.next)), 0)
	if n == 0 {
		return 0, len(c.next)
	}
	for _, e := range c.next[:n] {
		c.objects[e.position] = e.object
		c.version = e.version
	}
	c.log = append(c.log, c.next[:n]...)
	c.next = c.next[n:]
	close(c.wake)
	c.wake = make(chan struct{})
	return n, len(c.next)
}

// after returns the changes after version, and a channel that is closed at the next one.
// known is false when the history does not reach back to version.
func (c *corpus) after(version uint64) (changes []change, wake <-chan struct{}, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if version < c.floor {
		return nil, nil, false
	}
	from := sort.Search(len(c.log), func(i int) bool { return c.log[i].version > version })
	return c.log[from:len(c.log):len(c.log)], c.wake, true
}

// bookmark returns an encoded object that says that everything up to version was sent.
func (c *corpus) bookmark(version uint64, initialEventsEnd bool) ([]byte, error) {
	meta := metav1.ObjectMeta{ResourceVersion: strconv.FormatUint(version, 10)}
	if initialEventsEnd {
		meta.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return encode(c.maker.bookmark(meta), c.format)
}

func podsOf(seed uint64, n int) maker {
	m := newPodMaker(seed, n)
	return maker{
		typeOf:   typeOf{apiVersion: "v1", kind: "Pod"},
		object:   func(i int) metav1.Object { return m.pod(i) },
		changed:  func(i, burst, seq int) metav1.Object { return m.changed(i, burst, seq) },
		bookmark: func(meta metav1.ObjectMeta) any { return podWith(meta) },
	}
}

func databasesOf(seed uint64, n int) maker {
	m := &databaseMaker{seed: seed, n: n}
	t := typeOf{apiVersion: database.GroupVersion().String(), kind: "Database"}
	return maker{
		typeOf:  t,
		object:  func(i int) metav1.Object { return m.database(i) },
		changed: func(i, burst, seq int) metav1.Object { return m.changed(i, burst, seq) },
		bookmark: func(meta metav1.ObjectMeta) any {
			return &database.Database{
				TypeMeta:   metav1.TypeMeta{APIVersion: t.apiVersion, Kind: t.kind},
				ObjectMeta: meta,
			}
		},
	}
}
