package manager

import (
	"testing"

	"github.com/evenkeel-go/evenkeel/dev/integration/internal/election"
)

func TestDeposedLeaderWritesNothing(t *testing.T) {
	election.TestDeposedLeaderWritesNothing(t, local,
		election.Deposition{Writers: election.ManagedHandlers}, election.Deposition{Writers: election.ManagedRunnables},
		election.Deposition{Writers: election.ManagedHandlers, DeleteLease: true},
	)
}
