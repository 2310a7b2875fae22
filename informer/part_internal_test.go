package informer

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	internalcache "github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// newTestPart returns a part of an informer that does not run, and a function that encodes an object.
func newTestPart(t *testing.T) (p *part, encode func(name, version string) *wire.Object) {
	t.Helper()
	i, err := New(Config[*corev1.ConfigMap]{
		Retriever: FromListerWatcher[*corev1.ConfigMap](&cache.ListWatch{}), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	encoder := wire.NewEncoder[*corev1.ConfigMap](i.cut)
	encode = func(name, version string) *wire.Object {
		o, err := encoder.Encode(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID("uid-" + name), ResourceVersion: version,
		}})
		if err != nil {
			t.Fatal(err)
		}
		return o.Clone()
	}
	return i.core.parts[0], encode
}

// listingFeed is a feed whose lists have given objects and a given version.
type listingFeed struct {
	objects []*wire.Object
	version string
}

func (f listingFeed) list(_ context.Context, _ metav1.ListOptions, each func(*wire.Object) error) (metav1.ListMeta, error) {
	for _, o := range f.objects {
		if err := each(o); err != nil {
			return metav1.ListMeta{}, err
		}
	}
	return metav1.ListMeta{ResourceVersion: f.version}, nil
}

func (listingFeed) watch(context.Context, metav1.ListOptions) (events, error) { return nil, nil }

// An event that the informer has read but not stored shows that the watch is not silent, however long other subscribers
// delay it.
func TestVerificationIgnoresDifferencesWhileAnEventIsHandled(t *testing.T) {
	for name, busy := range map[string]bool{"busy": true, "idle": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, encode := newTestPart(t)
				p.contents.arrived(encode("a", "101"), Added, fromWatch)
				p.feed = listingFeed{objects: []*wire.Object{encode("a", "102")}, version: "102"}
				time.Sleep(time.Minute)
				g := &watchGuard{part: p, opened: time.Now()}
				g.setBusy(busy)
				if err := g.verify(t.Context()); (err == nil) != busy {
					t.Errorf("busy %t: %v", busy, err)
				}
			})
		})
	}
}

// An object that a list does not contain is missed only as long as the cache shows the same state of the same object.
// Versions of kinds that number each object separately return when an object is replaced.
func TestDeletionIsMissedOnlyWhileTheSameStateIsCached(t *testing.T) {
	for name, test := range map[string]struct {
		object, uid, version string
		has                  bool
	}{
		"same state":     {"a", "uid-a", "101", false},
		"earlier state":  {"a", "uid-a", "100", true},
		"earlier object": {"a", "uid-before", "101", true},
		"not cached":     {"b", "uid-b", "101", true},
	} {
		p, encode := newTestPart(t)
		p.contents.arrived(encode("a", "101"), Added, fromWatch)
		g := &watchGuard{part: p}
		d := difference{
			key: kube.Key{Namespace: "ns", Name: test.object}, uid: types.UID(test.uid), version: test.version, gone: true,
		}
		if has := g.has(d); has != test.has {
			t.Errorf("%s: has the deletion: %t, want %t", name, has, test.has)
		}
	}
}

// A session does not inherit errors and marks from the previous session.
func TestSessionBeginsWithoutMarks(t *testing.T) {
	p, _ := newTestPart(t)
	p.status.expirations, p.requests.paged, p.requests.pagedUntil = manyGone, time.Minute, time.Now().Add(time.Minute)
	p.failed(internalcache.ErrSilentWatch, true)
	(&watchGuard{part: p, stop: func() {}}).end(internalcache.ErrSilentWatch)
	p.progress.foundPerObject()
	p.progress.verifiedAt(time.Now())
	asked := func() string {
		opts := metav1.ListOptions{ResourceVersion: "5"}
		return p.requests.options(opts, p.progress.now().perObject).ResourceVersion
	}
	if !p.status.now.silent || !p.requests.consistent || asked() != "" {
		t.Fatalf("nothing is noted: %+v", p)
	}
	p.begin(func() {}, Listed)
	if p.status.now.silent || p.requests.consistent || p.progress.reached.perObject || p.status.now != (condition{}) || p.status.broken ||
		p.status.expirations != 0 || !p.progress.verified.IsZero() {
		t.Errorf("the next session knows of it: %+v", p)
	}
	if version := asked(); version != "5" {
		t.Errorf("its list asks for version %q", version)
	}
}

// A failed list must not affect the next one, because its objects may have been deleted since.
func TestListDiscardsUnconfirmedObjectsOfThePreviousList(t *testing.T) {
	for name, consistent := range map[string]bool{"consistent": true, "not older than": false} {
		t.Run(name, func(t *testing.T) {
			p, encode := newTestPart(t)
			p.contents.beginList(true, false)
			p.contents.arrived(encode("a", "101"), Added, fromList)
			p.listed("105")

			p.contents.beginList(false, false)
			p.contents.arrived(encode("a", "101"), Added, fromList)
			p.contents.arrived(encode("deleted", "103"), Added, fromList)
			if len(p.contents.list.unconfirmed) != 1 {
				t.Fatalf("%d objects are found, want one", len(p.contents.list.unconfirmed))
			}
			// The list fails, and another one begins.
			p.contents.beginList(consistent, false)
			p.contents.arrived(encode("a", "101"), Added, fromList)
			p.listed("106")
			if _, found := p.objects().Get(kube.Key{Namespace: "ns", Name: "deleted"}); found || p.objects().Len() != 1 {
				t.Errorf("the list has %d objects, and what it does not have is shown: %t", p.objects().Len(), found)
			}
		})
	}
}

// A list that may come from an old cache does not replace a newer state, so versions must be verified afterwards.
func TestListOlderThanCachedObjectIsUnverified(t *testing.T) {
	p, encode := newTestPart(t)
	p.contents.beginList(false, false)
	p.contents.arrived(encode("a", "105"), Added, fromList)
	// The list fails, and another one begins.
	p.contents.beginList(false, false)
	p.contents.arrived(encode("a", "101"), Added, fromList)
	p.listed("102")
	if sent := p.progress.newestSent(); sent != "105" || !p.status.condition().unverified {
		t.Errorf("the newest version is %q, want 105, unverified: %t", sent, p.status.condition().unverified)
	}
}

// The timer of a request may fire while its response arrives. The request must not be ended then.
func TestResponseAtTheTimeoutIsNotEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newTestPart(t)
		ctx, timer := p.responseTimer(t.Context(), "watch")
		defer timer.end()
		timer.expired() // the timer fires, and is started again
		timer.paused.Store(true)
		time.Sleep(2 * noResponse) // the timer was started again after pause had stopped it
		if ctx.Err() != nil {
			t.Errorf("the watch was ended: %v", context.Cause(ctx))
		}
		timer.resume()
		time.Sleep(2 * noResponse)
		if !errors.Is(context.Cause(ctx), errNoResponse) {
			t.Errorf("a request without an answer ended with %v, want %v", context.Cause(ctx), errNoResponse)
		}
	})
}

// Data that arrives while OnError is called starts the time for the next data.
func TestSlowOnErrorDoesNotDelayTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newTestPart(t)
		reports := make(chan time.Duration, 10)
		began := time.Now()
		p.core.onError = func(error) {
			reports <- time.Since(began)
			time.Sleep(time.Minute)
		}
		ctx, timer := p.responseTimer(t.Context(), "watch")
		defer timer.end()
		time.Sleep(slowResponse + 30*time.Second)
		timer.pause()
		timer.resume()
		time.Sleep(noResponse - time.Second)
		if n := len(reports); n != 2 || ctx.Err() != nil {
			t.Fatalf("%d reports, want 2 (%v)", n, context.Cause(ctx))
		}
		for _, want := range []time.Duration{slowResponse, 2*slowResponse + 30*time.Second} {
			if got := <-reports; got != want {
				t.Errorf("a report at %s, want %s", got, want)
			}
		}
		time.Sleep(2 * time.Second)
		if !errors.Is(context.Cause(ctx), errNoResponse) {
			t.Errorf("the request was not ended: %v", context.Cause(ctx))
		}
	})
}
