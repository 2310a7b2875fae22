package informer_test

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/kube"
)

// names returns the sorted names of objects.
func names(t *testing.T, objects iter.Seq2[configMap, error]) []string {
	t.Helper()
	var all []string
	for obj, err := range objects {
		if err != nil {
			t.Error(err)
			continue
		}
		all = append(all, obj.Name)
	}
	slices.Sort(all)
	return all
}

// zoo fills a server with objects that differ in namespaces, labels, owners and values.
func zoo(server *kindserver.Server[configMap]) {
	for i := range 12 {
		obj := object(fmt.Sprintf("m%02d", i), fmt.Sprint(i%3))
		obj.Namespace = fmt.Sprintf("ns%d", i%2)
		obj.Labels = map[string]string{"app": fmt.Sprintf("app%d", i%4)}
		if i%6 == 0 {
			obj.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "X", Name: "owner", UID: "owner-uid"}}
		}
		server.Put(obj)
	}
}

func byValue() []informer.Index[configMap] {
	return []informer.Index[configMap]{{Name: "value", Values: func(m configMap) []string { return []string{m.Data["value"]} }}}
}

func TestQueriesSelectAndCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true)
		zoo(server)
		f := startWith(t, server, informer.Config[configMap]{Indexes: byValue()})
		selector := func(text string) labels.Selector {
			s, err := labels.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		snapshot := f.informer.Snapshot()
		for name, test := range map[string]struct {
			query informer.Query
			want  []string
		}{
			"all":             {informer.Query{}, []string{"m00", "m01", "m02", "m03", "m04", "m05", "m06", "m07", "m08", "m09", "m10", "m11"}},
			"namespace":       {informer.Query{Namespace: "ns1"}, []string{"m01", "m03", "m05", "m07", "m09", "m11"}},
			"label":           {informer.Query{Labels: selector("app=app3")}, []string{"m03", "m07", "m11"}},
			"labels, negated": {informer.Query{Labels: selector("app!=app3,app!=app1")}, []string{"m00", "m02", "m04", "m06", "m08", "m10"}},
			"owner":           {informer.Query{OwnerUID: "owner-uid"}, []string{"m00", "m06"}},
			"user index":      {informer.Query{Index: "value", Value: "2"}, []string{"m02", "m05", "m08", "m11"}},
			"several":         {informer.Query{Namespace: "ns1", Labels: selector("app=app3"), Index: "value", Value: "2"}, []string{"m11"}},
			"none":            {informer.Query{Namespace: "elsewhere"}, nil},
		} {
			if diff := cmp.Diff(test.want, names(t, f.informer.List(test.query))); diff != "" {
				t.Errorf("%s: List (-want +got):\n%s", name, diff)
			}
			if diff := cmp.Diff(test.want, names(t, snapshot.List(test.query))); diff != "" {
				t.Errorf("%s: Snapshot.List (-want +got):\n%s", name, diff)
			}
			n, err := f.informer.Count(test.query)
			m, err2 := snapshot.Count(test.query)
			if n != len(test.want) || m != n || err != nil || err2 != nil {
				t.Errorf("%s: Count %d, %v; of the snapshot %d, %v; want %d", name, n, err, m, err2, len(test.want))
			}
		}

		// A changed object moves between the values of an index.
		moved := object("m00", "2")
		moved.Namespace = "ns0"
		server.Put(moved)
		synctest.Wait()
		if n, err := f.informer.Count(informer.Query{Index: "value", Value: "2"}); n != 5 || err != nil {
			t.Errorf("after one came to the value: %d, %v", n, err)
		}
		if n, err := f.informer.Count(informer.Query{OwnerUID: "owner-uid"}); n != 1 || err != nil {
			t.Errorf("after one lost its owner: %d, %v", n, err)
		}
	})
}

func TestUnknownIndexIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true)
		zoo(server)
		f := start(t, server, nil)
		query := informer.Query{Index: "colour", Value: "red"}
		snapshot := f.informer.Snapshot()
		_, countErr := f.informer.Count(query)
		_, snapshotErr := snapshot.Count(query)
		errs := map[string]error{"Count": countErr, "Snapshot.Count": snapshotErr}
		for name, list := range map[string]iter.Seq2[configMap, error]{"List": f.informer.List(query), "Snapshot.List": snapshot.List(query)} {
			n := 0
			for obj, err := range list {
				n++
				errs[name] = err
				if obj != nil {
					t.Errorf("%s yields %v", name, obj)
				}
			}
			if n != 1 {
				t.Errorf("%s yields %d times, want just the error", name, n)
			}
		}
		for name, err := range errs {
			if err == nil || !strings.Contains(err.Error(), "colour") {
				t.Errorf("%s: %v; want the index named", name, err)
			}
		}
	})
}

// An index may fail for each state of each object. The informer logs one warning per hour.
func TestFailingIndexIsLoggedRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true)
		zoo(server)
		indexes := []informer.Index[configMap]{{Name: "broken", Values: func(configMap) []string { panic("no value") }}}
		f := startWith(t, server, informer.Config[configMap]{Indexes: indexes})
		for n := range 100 {
			server.Put(object("a", fmt.Sprint(n)))
			synctest.Wait()
		}
		warned := func() int {
			return strings.Count(f.logs.String(), `level=WARN msg="informer keeps an object without an index"`)
		}
		if n := warned(); n != 1 {
			t.Errorf("warned %d times, want once", n)
		}
		time.Sleep(time.Hour)
		server.Put(object("a", "later"))
		synctest.Wait()
		if n := warned(); n != 2 || f.value("a") != "later" {
			t.Errorf("after an hour: warned %d times, want twice; a is %q", n, f.value("a"))
		}
	})
}

func TestIndexesAreChecked(t *testing.T) {
	_, err := informer.New(informer.Config[configMap]{
		Name: "x", Retriever: newServer(true), Cut: []string{"no.such.field"},
		Indexes: []informer.Index[configMap]{{Name: "nameless"}, {Values: byValue()[0].Values}},
	})
	for _, want := range []string{`Indexes[0] ("nameless")`, `Indexes[1] ("")`, "Cut", "no"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
	_, err = informer.New(informer.Config[configMap]{Name: "x", Retriever: newServer(true), Indexes: append(byValue(), byValue()...)})
	if err == nil || !strings.Contains(err.Error(), "value") {
		t.Errorf("two indexes of one name: %v", err)
	}
}

func TestSnapshotDoesNotChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true, object("a", "1"), object("b", "1"))
		f := start(t, server, nil)
		snapshot := f.informer.Snapshot()
		server.Put(object("a", "2"))
		server.Delete(key("b"))
		server.Put(object("c", "1"))
		synctest.Wait()
		if got := names(t, snapshot.List(informer.Query{})); !slices.Equal(got, []string{"a", "b"}) || snapshot.Len() != 2 {
			t.Errorf("the snapshot has %v", got)
		}
		if n, err := snapshot.Count(informer.Query{Namespace: "ns"}); n != 2 || err != nil {
			t.Errorf("it counts %d, %v", n, err)
		}
		obj, found, err := snapshot.Get(key("a"))
		if err != nil || !found || obj.Data["value"] != "1" {
			t.Errorf("a in it is %v, found %v, %v", obj, found, err)
		}
		obj.Data["value"] = "mine"
		if second, _, _ := snapshot.Get(key("a")); second.Data["value"] != "1" {
			t.Error("a reader changed the snapshot")
		}
		if _, found, err := snapshot.Get(key("c")); found || err != nil {
			t.Errorf("c, which came later, is in it: %v", err)
		}
		if got := names(t, f.informer.List(informer.Query{})); !slices.Equal(got, []string{"a", "c"}) {
			t.Errorf("the informer has %v", got)
		}
	})
}

func TestListStopsEarlyAndReadsNest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true)
		zoo(server)
		f := start(t, server, nil)
		n := 0
		for obj, err := range f.informer.List(informer.Query{}) {
			if err != nil {
				t.Fatal(err)
			}
			n++
			// No lock is held: events are stored, and other goroutines read.
			server.Put(obj)
			synctest.Wait()
			if got := f.informer.Len(); got != 12 {
				t.Errorf("Len within the loop is %d", got)
			}
			if n == 3 {
				break
			}
		}
		if before := f.informer.Health().Decoded; before != 3 {
			t.Errorf("%d objects were decoded for a list that was left after 3", before)
		}
	})
}

func TestListedVisitsEachObjectOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left, right := newServer(true), newServer(true)
		zoo(left)
		right.Put(object("r", "1"))
		f := start(t, nil, informer.Combine[configMap](left, right))
		seen := map[kube.Key]int{}
		for share := range 5 {
			for c := range f.informer.Walk(share, 5) {
				if o, err := cache.Of(c).New(); c.Type != informer.Listed || err != nil || o.Key != c.Key {
					t.Errorf("%s is %s as %v, %v", c.Key, c.Type, o, err)
				}
				seen[c.Key]++
			}
		}
		for k, n := range seen {
			if n != 1 {
				t.Errorf("%s is in %d shares", k, n)
			}
		}
		if len(seen) != 13 {
			t.Errorf("%d keys in all, want 13", len(seen))
		}
		for range f.informer.Walk(0, 1) {
			break
		}
	})
}
