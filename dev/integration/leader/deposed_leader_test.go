package leader

import (
	"testing"

	"github.com/evenkeel-go/evenkeel/dev/integration/internal/election"
)

func TestDeposedLeaderWritesNothing(t *testing.T) {
	election.TestDeposedLeaderWritesNothing(t, local,
		election.Deposition{Writers: election.Handlers}, election.Deposition{Writers: election.Outliving},
		election.Deposition{Writers: election.OwnContext}, election.Deposition{Writers: election.Outliving, DeleteLease: true},
	)
}
