package operator

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/examples/podterminator/api/v1alpha1"
)

func TestQuota(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		alive             int
		percent, minAlive int32
		want              int
	}{
		"exact share":                        {alive: 10, percent: 30, want: 3},
		"share is rounded up":                {alive: 10, percent: 31, want: 4},
		"one Pod, one percent":               {alive: 1, percent: 1, want: 1},
		"all":                                {alive: 7, percent: 100, want: 7},
		"none":                               {alive: 7, percent: 0, want: 0},
		"no Pod":                             {alive: 0, percent: 100, want: 0},
		"minAlive stay":                      {alive: 10, percent: 100, minAlive: 8, want: 2},
		"as many as minAlive":                {alive: 8, percent: 100, minAlive: 8, want: 0},
		"fewer than minAlive":                {alive: 3, percent: 100, minAlive: 8, want: 0},
		"minAlive does not reduce the share": {alive: 10, percent: 20, minAlive: 3, want: 2},
		"limit of the status":                {alive: 5000, percent: 50, want: v1alpha1.MaxVictims},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := quota(tt.alive, tt.percent, tt.minAlive); got != tt.want {
				t.Errorf("quota(%d, %d%%, min %d) is %d, want %d", tt.alive, tt.percent, tt.minAlive, got, tt.want)
			}
		})
	}
}

func TestChooseIsUniform(t *testing.T) {
	t.Parallel()
	all := refs("a", "b", "c", "d", "e")
	before := refs("a", "b", "c", "d", "e")
	chance := rand.New(rand.NewPCG(1, 2))
	times := map[string]int{}
	for range 1000 {
		chosen := choose(all, 2, chance.Shuffle)
		if len(chosen) != 2 || chosen[0].Name >= chosen[1].Name {
			t.Fatalf("chose %v: want two different Pods, sorted by name", chosen)
		}
		for _, p := range chosen {
			times[p.Name]++
		}
	}
	for _, p := range all {
		if n := times[p.Name]; n < 320 || n > 480 { // 400 expected; five standard deviations are 77
			t.Errorf("Pod %s was chosen %d times of 1000, want about 400", p.Name, n)
		}
	}
	if diff := cmp.Diff(before, all); diff != "" {
		t.Errorf("choose changed its input (-before +after):\n%s", diff)
	}
	if none := choose(nil, 0, chance.Shuffle); none == nil {
		t.Error("choosing from no Pods returned nil, which would be a null in the status")
	}
}

func TestClassifyVictims(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		victims          []v1alpha1.PodReference
		alive            []v1alpha1.PodReference
		exist            []v1alpha1.PodReference // besides those alive
		minAlive         int32
		end, gone, spare []v1alpha1.PodReference
	}{
		"a new plan is carried out": {
			victims: refs("a", "b"), alive: refs("a", "b", "c"),
			end: refs("a", "b"),
		},
		"victims that the first attempt ended are not replaced": {
			victims: refs("a", "b"), alive: refs("b", "c", "d"),
			gone: refs("a"), end: refs("b"),
		},
		"a new Pod with the same name is not a victim": {
			victims: refs("a"), alive: []v1alpha1.PodReference{{Name: "a", UID: "new"}},
			gone: refs("a"),
		},
		"minAlive is kept if other clients ended Pods": {
			victims: refs("a", "b"), alive: refs("a", "b", "c"), minAlive: 2,
			end: refs("a"), spare: refs("b"),
		},
		"all are spared if too few are alive": {
			victims: refs("a", "b"), alive: refs("a", "b"), minAlive: 3,
			spare: refs("a", "b"),
		},
		"a Pod that is not selected any more is spared": {
			victims: refs("a", "b"), alive: refs("b", "c"), exist: refs("a"),
			end: refs("b"), spare: refs("a"),
		},
		"nothing planned": {alive: refs("a")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pods := census{alive: tt.alive, exist: map[types.UID]bool{}}
			for _, p := range append(tt.exist, tt.alive...) {
				pods.exist[p.UID] = true
			}
			end, gone, spare := classifyVictims(tt.victims, pods, tt.minAlive)
			want := map[string][]v1alpha1.PodReference{"end": tt.end, "gone": tt.gone, "spare": tt.spare}
			got := map[string][]v1alpha1.PodReference{"end": end, "gone": gone, "spare": spare}
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("classes of victims (-want +got):\n%s", diff)
			}
		})
	}
}

func refs(names ...string) []v1alpha1.PodReference {
	var out []v1alpha1.PodReference
	for _, name := range names {
		out = append(out, v1alpha1.PodReference{Name: name, UID: types.UID(fmt.Sprintf("uid-%s", name))})
	}
	return out
}
