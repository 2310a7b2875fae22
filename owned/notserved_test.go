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
		var s Set
		s.notServed.Keep = notServedFor
		kind, other := schema.GroupKind{Kind: "A"}, schema.GroupKind{Kind: "B"}
		if !s.isServed(kind) {
			t.Error("has an unknown kind")
		}
		s.setServed(kind, false)
		time.Sleep(notServedFor - 1)
		if s.isServed(kind) || !s.isServed(other) {
			t.Error("the kind expired too early, or another kind was added")
		}
		time.Sleep(time.Nanosecond)
		if !s.isServed(kind) {
			t.Error("the kind does not expire")
		}
		s.setServed(kind, false)
		s.setServed(other, false)
		if s.setServed(kind, true); !s.isServed(kind) || s.isServed(other) {
			t.Error("remove must remove one kind")
		}
	})
}
