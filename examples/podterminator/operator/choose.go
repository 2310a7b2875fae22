package operator

import (
	"cmp"
	"slices"

	"github.com/evenkeel-go/evenkeel/examples/podterminator/api/v1alpha1"
)

// quota returns the number of Pods that a round may end: percent of alive, rounded up, but at least minAlive must
// remain.
func quota(alive int, percent, minAlive int32) int {
	share := (alive*int(percent) + 99) / 100
	return max(0, min(share, alive-int(minAlive), v1alpha1.MaxVictims))
}

// choose returns n random Pods. shuffle is that of math/rand/v2.
func choose(pods []v1alpha1.PodReference, n int, shuffle func(n int, swap func(i, j int))) []v1alpha1.PodReference {
	// Never nil: a null in the status would remove the field, which is required in a plan.
	chosen := append([]v1alpha1.PodReference{}, pods...)
	shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
	chosen = chosen[:n]
	slices.SortFunc(chosen, func(a, b v1alpha1.PodReference) int { return cmp.Compare(a.Name, b.Name) })
	return chosen
}

// classifyVictims divides the victims of a plan into those to end now, those that are deleted already, and those to
// spare, because they are not selected any more or because of minAlive.
//
// Directly after the choice all of them are to end. When a plan is resumed after a crash or a failed request, Pods may
// have been deleted in the meantime, by the first attempt or by other clients. minAlive is therefore checked again.
func classifyVictims(
	victims []v1alpha1.PodReference, pods census, minAlive int32,
) (end, gone, spare []v1alpha1.PodReference) {
	budget := len(pods.alive) - int(minAlive)
	for _, v := range victims {
		switch {
		case !pods.exist[v.UID]:
			gone = append(gone, v)
		case !slices.Contains(pods.alive, v), budget <= 0:
			spare = append(spare, v)
		default:
			end = append(end, v)
			budget--
		}
	}
	return end, gone, spare
}
