package owned

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestUnservedKindsExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var kinds notServed
		kind, other := schema.GroupKind{Kind: "A"}, schema.GroupKind{Kind: "B"}
		if kinds.has(kind) {
			t.Error("has an unknown kind")
		}
		kinds.add(kind)
		time.Sleep(notServedFor - 1)
		if !kinds.has(kind) || kinds.has(other) {
			t.Error("the kind expired too early, or another kind was added")
		}
		time.Sleep(time.Nanosecond)
		if kinds.has(kind) {
			t.Error("the kind does not expire")
		}
		kinds.add(kind)
		kinds.add(other)
		if kinds.remove(kind); kinds.has(kind) || !kinds.has(other) {
			t.Error("remove must remove one kind")
		}
	})
}
