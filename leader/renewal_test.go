package leader

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/leadership"
)

// A leader survives one renewal without a response.
func TestLeaderSurvivesHungRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		c := s.client("a")
		r := run(t, newTestElector(t, c), func(ctx context.Context) error {
			select {
			case <-ctx.Done():
			case <-leadership.Lost(ctx):
				t.Error("leadership was lost")
			}
			return nil
		})
		pass(5 * time.Second)
		c.fail(func(ctx context.Context, verb string) error {
			c.fail(nil)
			return hang(ctx, verb)
		})
		pass(time.Minute)
		r.stopWithoutError(t)
	})
}
