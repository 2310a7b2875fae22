package status_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/status"
)

// TestStaleCommitsKeepOtherClientsChanges commits random changes of states that are up to four writes old. Before each
// patch, another client adds, changes, removes and moves its own conditions among 30. After each commit the run's
// changes must be in the cluster, and all other conditions must be as the other client has written them.
func TestStaleCommitsKeepOtherClientsChanges(t *testing.T) {
	t.Parallel()
	for seed := range testlength.Count(6, 30) {
		random := rand.New(rand.NewPCG(uint64(seed), 34))
		w := newWorld(t)
		want := map[string]string{} // by type: status and reason
		w.edit(func(fields map[string]any) {
			var list []any
			for n := range 30 {
				name := fmt.Sprint("Other", n)
				list, want[name] = append(list, condition(name, "True")), said(condition(name, "True"))
			}
			fields["conditions"] = list
		})
		disturbed := 0 // in this commit: Commit sends at most five patches
		w.disturb = func() {
			if disturbed++; disturbed > 3 || random.IntN(3) == 0 {
				return
			}
			w.edit(func(fields map[string]any) {
				list := slices.Clone(fields["conditions"].([]any))
				name := fmt.Sprint("Other", random.IntN(32))
				at := slices.IndexFunc(list, func(c any) bool { return c.(map[string]any)["type"] == name })
				changed := condition(name, []string{"True", "False", "Unknown"}[random.IntN(3)])
				switch {
				case random.IntN(4) == 0:
					random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
				case at < 0:
					list, want[name] = slices.Insert(list, random.IntN(len(list)+1), any(changed)), said(changed)
				case random.IntN(2) == 0:
					list = slices.Delete(list, at, at+1)
					delete(want, name)
				default:
					list[at], want[name] = changed, said(changed)
				}
				fields["conditions"] = list
			})
		}
		seen := []*Shop{w.shop(t)}
		for step := range 8 {
			before := seen[max(0, len(seen)-1-random.IntN(4))]
			after := before.copy()
			disturbed = 0
			for range 1 + random.IntN(3) {
				name := fmt.Sprint("Own", random.IntN(4))
				if random.IntN(4) == 0 {
					meta.RemoveStatusCondition(&after.Status.Conditions, name)
					continue
				}
				c := metav1.Condition{Type: name, Status: metav1.ConditionStatus([]string{"True", "False"}[random.IntN(2)]), Reason: fmt.Sprint("Step", step), Message: ""}
				status.Set(&after.Status.Conditions, c)
			}
			_, err := status.Commit(t.Context(), w.client, before, after)
			if err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
			wanted := maps.Clone(want) // the changes of the other client during the commit
			for n := range 4 {
				name := fmt.Sprint("Own", n)
				old := meta.FindStatusCondition(before.Status.Conditions, name)
				current := meta.FindStatusCondition(after.Status.Conditions, name)
				switch {
				case reflect.DeepEqual(old, current):
				case current != nil:
					wanted[name] = string(current.Status) + current.Reason
				default:
					delete(wanted, name)
				}
			}
			live := w.shop(t)
			got := map[string]string{}
			for _, c := range live.Status.Conditions {
				if _, twice := got[c.Type]; twice {
					t.Fatalf("seed %d, step %d: two conditions %s", seed, step, c.Type)
				}
				got[c.Type] = string(c.Status) + c.Reason
			}
			if !maps.Equal(got, wanted) {
				t.Fatalf("seed %d, step %d: the cluster has\n%v\nwant\n%v", seed, step, got, wanted)
			}
			want = wanted
			seen = append(seen, live)
		}
	}
}

func said(condition map[string]any) string {
	reason, _ := condition["reason"].(string)
	return condition["status"].(string) + reason
}
