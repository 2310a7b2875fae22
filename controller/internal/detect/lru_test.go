package detect

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLRU(t *testing.T) {
	t.Parallel()
	l := newLRU[string, int](3)
	order := func() (keys []string) {
		for e := l.ring.next; e != &l.ring; e = e.next {
			keys = append(keys, e.key)
		}
		return keys
	}
	if _, _, ok := l.oldest(); ok {
		t.Error("the oldest of none")
	}
	for i, key := range []string{"a", "b", "c"} {
		if _, full := l.add(key, i, false); full {
			t.Errorf("no room for %s", key)
		}
	}
	for _, step := range []struct {
		do   func()
		want []string
	}{
		{func() {}, []string{"c", "b", "a"}},
		{func() { l.get("a") }, []string{"a", "c", "b"}},
		{func() { l.peek("b") }, []string{"a", "c", "b"}},
		{func() { l.get("none") }, []string{"a", "c", "b"}},
		{func() { l.add("d", 3, false) }, []string{"d", "a", "c"}},
		{func() { l.add("new", 4, true) }, []string{"d", "a", "new"}},
		{func() { l.add("e", 5, true) }, []string{"d", "a", "e"}},
		{func() { l.get("e") }, []string{"e", "d", "a"}},
		{func() { l.remove("d") }, []string{"e", "a"}},
		{func() { l.remove("none") }, []string{"e", "a"}},
	} {
		step.do()
		if diff := cmp.Diff(step.want, order()); diff != "" || l.len() != len(step.want) {
			t.Fatalf("order (-want +got):\n%s", diff)
		}
	}
	if v, ok := l.peek("e"); !ok || v != 5 {
		t.Errorf("e is %d, %t", v, ok)
	}
	if key, _, _ := l.oldest(); key != "a" {
		t.Errorf("the oldest is %s", key)
	}
	l.add("f", 6, false)
	if gone, full := l.add("g", 7, false); !full || gone != 0 {
		t.Errorf("instead of a, %d went (%t)", gone, full)
	}
}
