package informer_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
)

// TestIndexAddedAtRunTime adds indexes to a running informer with combined Retrievers, through a view too, and checks
// that they follow changes, a new Retriever, and a second run, without another list.
func TestIndexAddedAtRunTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second, third := holding("a", "b"), holding("c"), holding("d")
		f := startWith(t, first, informer.Config[configMap]{Retriever: informer.Combine[configMap](first, second)})
		query := informer.Query{Index: "value", Value: "1"}
		if n, err := f.informer.Count(query); err == nil || n != 0 {
			t.Errorf("a query with an index that will be added: %d, %v", n, err)
		}
		before := f.informer.Snapshot()
		if err := f.informer.AddIndex(byValue()[0]); err != nil {
			t.Fatal(err)
		}
		view, err := informer.As[*metav1.PartialObjectMetadata](f.informer)
		if err != nil {
			t.Fatal(err)
		}
		if err := view.AddIndex(informer.Index[*metav1.PartialObjectMetadata]{Name: "name", Values: func(m *metav1.PartialObjectMetadata) []string {
			return []string{m.Name}
		}}); err != nil {
			t.Fatal(err)
		}
		expect := func(want ...string) {
			t.Helper()
			synctest.Wait()
			if diff := cmp.Diff(want, names(t, f.informer.List(query))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for _, name := range want {
				if n, err := view.Count(informer.Query{Index: "name", Value: name}); n != 1 || err != nil {
					t.Errorf("the view's index has %d objects for %s, %v", n, name, err)
				}
			}
		}
		expect("a", "b", "c")
		if _, err := before.Count(query); err == nil {
			t.Error("a query in a Snapshot from before returns no error")
		}
		first.Put(object("a", "2"))
		second.Put(object("c2", "1"))
		expect("b", "c", "c2")
		if _, watches, _ := first.Counts(); watches != 1 {
			t.Errorf("%d streamed lists, want the first one only", watches)
		}
		if err := f.informer.SetRetriever(t.Context(), informer.Combine[configMap](first, third)); err != nil {
			t.Fatal(err)
		}
		expect("b", "d")
		f.stop()
		f.stop = testrun.Start(t, f.informer.Run)
		defer func() { f.stop() }()
		expect("b", "d")
	})
}

func TestAddIndexReportsMistakesAndBrokenFunctions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startWith(t, holding("a", "b"), informer.Config[configMap]{Indexes: byValue()})
		for want, index := range map[string]informer.Index[configMap]{
			"Name and Values are required": {Name: "empty"},
			"another has the same name":    byValue()[0],
		} {
			if err := f.informer.AddIndex(index); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `"test"`) {
				t.Errorf("AddIndex: %v, want %q in it", err, want)
			}
		}
		broken := informer.Index[configMap]{Name: "broken", Values: func(m configMap) []string {
			if m.Name == "a" {
				panic("broken function")
			}
			return []string{"x"}
		}}
		if err := f.informer.AddIndex(broken); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]string{"b"}, names(t, f.informer.List(informer.Query{Index: "broken", Value: "x"}))); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if logs := f.logs.String(); !strings.Contains(logs, "index lacks objects") || !strings.Contains(logs, "ns/a") {
			t.Errorf("the log does not name the object: %s", logs)
		}
	})
}

// TestIndexesAddedDuringChangesAndRuns adds indexes while objects change and the informer stops and starts.
func TestIndexesAddedDuringChangesAndRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startWith(t, holding("a"), informer.Config[configMap]{Indexes: byValue()})
		const n = 20
		added := make(chan error, n)
		go func() { // waited for below
			for i := range n {
				index := byValue()[0]
				index.Name = fmt.Sprint(i)
				added <- f.informer.AddIndex(index)
			}
		}()
		for i := range n {
			f.server.Put(object(fmt.Sprint("m", i), fmt.Sprint(i%3)))
			if i%5 == 0 {
				f.stop()
				f.stop = testrun.Start(t, f.informer.Run)
			}
		}
		for range n {
			if err := <-added; err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		defer func() { f.stop() }()
		want := names(t, f.informer.List(informer.Query{Index: "value", Value: "1"}))
		for i := range n {
			if diff := cmp.Diff(want, names(t, f.informer.List(informer.Query{Index: fmt.Sprint(i), Value: "1"}))); diff != "" || len(want) < n/3 {
				t.Errorf("index %d (-want +got):\n%s", i, diff)
			}
		}
	})
}
