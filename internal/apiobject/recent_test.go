package apiobject

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// An entry stays while it is read, and others are dropped.
func TestRecentDropsUnusedEntries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		entries := Recent[string, int]{Keep: time.Hour}
		set := func(key string, to int) { entries.Do(key, func(v *int) { *v = to }) }
		size := func() int { return len(entries.recent) + len(entries.earlier) }
		set("idle", 1)
		set("used", 2)
		for range 4 {
			time.Sleep(45 * time.Minute)
			if got := entries.Get("used"); got != 2 {
				t.Fatalf("a used entry is %d", got)
			}
		}
		if entries.Get("idle") != 0 || size() > 2 {
			t.Errorf("%d entries: recent %v, earlier %v", size(), entries.recent, entries.earlier)
		}
		entries.Get("missing")
		entries.Do("used", func(v *int) { *v++ })
		if entries.Get("used") != 3 || size() > 2 {
			t.Errorf("recent %v, earlier %v", entries.recent, entries.earlier)
		}
	})
}

func TestClaimsDetectHoldersInTurn(t *testing.T) {
	t.Parallel()
	claims := NewClaims()
	for i, step := range []struct {
		name, holder string
		want         bool
	}{
		{"x", "a", true},
		{"x", "a", true},
		{"y", "b", true},
		{"x", "b", true},
		{"x", "b", true},
		{"x", "a", false},
		{"x", "a", false},
		{"x", "b", true},
		{"x", "c", true},
		{"x", "b", false},
	} {
		if got := claims.Use(step.name, step.holder); got != step.want {
			t.Errorf("step %d: %+v: %v", i, step, got)
		}
	}
	if ClaimsOf(&http.Client{}) == nil {
		t.Error("another client has no claims")
	}
}

func TestIdleRecentDropsEntries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		entries := Recent[string, int]{Keep: 10 * time.Minute}
		entries.Do("a", func(v *int) { *v = 1 })
		time.Sleep(10 * time.Hour)
		if got := entries.Get("a"); got != 0 {
			t.Errorf("after 10 h, an entry of at most 20 min is %d", got)
		}
	})
}

// A holder may use a name again after the other one has not used it for some time.
func TestHolderMayUseNameAfterOtherOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		claims := NewClaims()
		claims.Use("x", "a")
		claims.Use("x", "b")
		ok := false
		for range 120 {
			time.Sleep(time.Minute)
			ok = claims.Use("x", "a")
		}
		if !ok {
			t.Error("a is refused two hours after the last use by b")
		}
	})
}
