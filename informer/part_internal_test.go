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
				p.arrived(encode("a", "101"), Added, fromWatch)
				p.feed = listingFeed{objects: []*wire.Object{encode("a", "102")}, version: "102"}
				time.Sleep(time.Minute)
				g := &guard{part: p, opened: time.Now()}
				g.busy.Store(busy)
				if err := g.verify(t.Context()); (err == nil) != busy {
					t.Errorf("busy %t: %v", busy, err)
				}
			})
		})
	}
}

// A session does not inherit errors and marks from the previous session.
func TestSessionBeginsWithoutMarks(t *testing.T) {
	p, _ := newTestPart(t)
	p.gone410, p.paged, p.pagedUntil = manyGone, time.Minute, time.Now().Add(time.Minute)
	p.broke(ErrSilentWatch)
	p.forceQuorumList(ErrSilentWatch)
	p.foundPerObject()
	p.checkedAt(time.Now())
	if !p.silent || !p.suspect || p.listOptions(metav1.ListOptions{ResourceVersion: "5"}).ResourceVersion != "" {
		t.Fatalf("nothing is noted: %+v", p)
	}
	p.begin(func() {}, Listed)
	if p.silent || p.suspect || p.perObject || p.complete || p.synced || p.broken || p.err != nil || p.gone410 != 0 || !p.checked.IsZero() {
		t.Errorf("the next session knows of it: %+v", p)
	}
	if asked := p.listOptions(metav1.ListOptions{ResourceVersion: "5"}).ResourceVersion; asked != "5" {
		t.Errorf("its list asks for version %q", asked)
	}
}

// A failed list must not affect the next one, because its objects may have been deleted since.
func TestListDiscardsUnconfirmedObjectsOfThePreviousList(t *testing.T) {
	for name, consistent := range map[string]bool{"consistent": true, "not older than": false} {
		t.Run(name, func(t *testing.T) {
			p, encode := newTestPart(t)
			p.beginList(true, false)
			p.arrived(encode("a", "101"), Added, fromList)
			p.listed("105")

			p.beginList(false, false)
			p.arrived(encode("a", "101"), Added, fromList)
			p.arrived(encode("deleted", "103"), Added, fromList)
			if len(p.unconfirmed) != 1 {
				t.Fatalf("%d objects are found, want one", len(p.unconfirmed))
			}
			// The list fails, and another one begins.
			p.beginList(consistent, false)
			p.arrived(encode("a", "101"), Added, fromList)
			p.listed("106")
			if _, found := p.objects().Get(kube.Key{Namespace: "ns", Name: "deleted"}); found || p.objects().Len() != 1 {
				t.Errorf("the list has %d objects, and what it does not have is shown: %t", p.objects().Len(), found)
			}
		})
	}
}

// The timer of a request may fire while its response arrives. The request must not be ended then.
func TestResponseAtTheTimeoutIsNotEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newTestPart(t)
		ctx, answer := p.patience(t.Context(), "watch")
		defer answer.end()
		answer.expired() // the timer fires, and is started again
		answer.paused.Store(true)
		time.Sleep(2 * noAnswer) // the timer was started again after pause had stopped it
		if ctx.Err() != nil {
			t.Errorf("the watch was ended: %v", context.Cause(ctx))
		}
		answer.resume()
		time.Sleep(2 * noAnswer)
		if !errors.Is(context.Cause(ctx), errNoAnswer) {
			t.Errorf("a request without an answer ended with %v, want %v", context.Cause(ctx), errNoAnswer)
		}
	})
}
