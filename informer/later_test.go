package informer_test

import (
	"testing"
	"testing/synctest"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
)

// The result of Later does not depend on later changes of the object.
func TestLaterReturnsThePartsThatChangedThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true)
		server.Put(object("a", "1"))
		inf := start(t, server, nil).informer
		synctest.Wait()
		type told struct {
			now   kube.ChangedParts
			later func() kube.ChangedParts
		}
		var all []told
		defer inf.Subscribe(func(c informer.Change) {
			if c.Type == informer.Updated {
				later := c.Later()
				all = append(all, told{c.Changed(kube.ChangedAnything), later})
			} else if c.Later() != nil {
				t.Errorf("%s has something to compare", c.Type)
			}
		})()
		for _, value := range []string{"2", "3"} {
			server.Put(object("a", value))
		}
		labelled := object("a", "3")
		labelled.Labels = map[string]string{"x": "y"}
		server.Put(labelled)
		server.Delete(key("a"))
		synctest.Wait()
		if len(all) != 3 {
			t.Fatalf("%d updates", len(all))
		}
		for i, each := range all {
			if got := each.later(); got != each.now || got == 0 {
				t.Errorf("update %d: later it is %s, then it was %s", i, got, each.now)
			}
		}
		if all[2].now&kube.ChangedLabels == 0 {
			t.Errorf("the last update changed %s", all[2].now)
		}
	})
}
