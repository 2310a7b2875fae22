package owned

import (
	"testing"
)

func TestPlanStringWithoutChildren(t *testing.T) {
	t.Parallel()
	if got, want := (Plan{Owner: "WebApp shop/web"}).String(), "WebApp shop/web: no children\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	plan := Plan{Owner: "WebApp shop/web", OwnerTerminating: true}
	if got, want := plan.String(), "WebApp shop/web: nothing to do, because it is being deleted\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
