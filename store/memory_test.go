package store_test

import (
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemory(t *testing.T) {
	t.Parallel()
	testStore(t, func() store.Store[*corev1.Pod] { return store.NewMemory[*corev1.Pod]() })
}
