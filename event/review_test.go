package event_test

import (
	"net/http"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/event"
)

// Both are answered by 403; only one of them is mended by a Role.
func TestTheHintToRolesIsForWhatIsForbidden(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		cause metav1.CauseType
		hints int
	}{
		"no Role":           {"", 1},
		"a namespace's end": {corev1.NamespaceTerminatingCause, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := newAPIServer()
				server.answer = func(*http.Request) (*http.Response, error) {
					err := apierrors.NewForbidden(resource(), "web", errRefused)
					if test.cause != "" {
						err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: test.cause}}
					}
					return status(err), nil
				}
				recorder, logged := server.recorder(t, event.Config{})
				start(t, t.Context(), recorder)
				recorder.Event(pod("web"), "Warning", "A", "B", "")
				synctest.Wait()
				if n := logged.with("could not be sent"); n != 1 {
					t.Errorf("%d log lines, want 1", n)
				}
				if n := logged.with("a Role must allow"); n != test.hints {
					t.Errorf("%d hints to Roles, want %d", n, test.hints)
				}
			})
		})
	}
}
