package webhook

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/evenkeel-go/evenkeel/kube"
)

// validRobot sets the size of a robot of v1 to one that v2 can have.
func validRobot(obj kube.Object) {
	if r, ok := obj.(robotV1); ok && r.Spec.Size != "" {
		r.Spec.Size += "x" + r.Spec.Size
	}
}

func TestCheckRoundTrips(t *testing.T) {
	t.Parallel()
	spoke := func(toV1 func(robotV2, robotV1) error, toV2 func(robotV1, robotV2) error) Hook {
		if toV1 == nil {
			toV1 = v2ToV1
		}
		if toV2 == nil {
			toV2 = v1ToV2
		}
		return Converting(robotsCRD, Spoke(toV2, toV1), Spoke(v3ToV2, v2ToV3))
	}
	forgetful := func(from robotV2, to robotV1) error {
		to.Spec.Size = from.Spec.Length + "x" + from.Spec.Width
		return nil
	}
	for name, test := range map[string]struct {
		hook    Hook
		options RoundTrips
		want    []string // parts of the error
		lacks   string
	}{
		"no loss": {hook: robotHook(), options: RoundTrips{Adjust: validRobot}},
		"lost fields": {
			hook: spoke(forgetful, nil), options: RoundTrips{Adjust: validRobot},
			want: []string{
				"round trips of robots.example.com:", "*apitest.Object[github.com/evenkeel-go/evenkeel/webhook.specV2] by way of *apitest.Object[github.com/evenkeel-go/evenkeel/webhook.specV1]",
				"spec.arms is lost: it was [{", "spec.limit is lost: it was ", "spec.names is lost: it was [",
			}, lacks: "spec.length",
		},
		"lossy fields":     {hook: spoke(forgetful, nil), options: RoundTrips{Adjust: validRobot, Lossy: []string{"spec.arms", "spec.limit", "spec.names", "spec.size"}}},
		"one lossy field":  {hook: spoke(forgetful, nil), options: RoundTrips{Adjust: validRobot, Lossy: []string{"spec.arms"}}, want: []string{"spec.limit is lost"}, lacks: "spec.arms"},
		"failed objects":   {hook: robotHook(), want: []string{"object 0: spec.size: Invalid value: ", "want LENGTHxWIDTH"}},
		"panic":            {hook: spoke(nil, func(robotV1, robotV2) error { panic("oops") }), want: []string{"object 0: the conversion panicked: oops"}},
		"changed metadata": {hook: spoke(nil, func(_ robotV1, to robotV2) error { to.UID = ""; return nil }), want: []string{"metadata.uid was changed"}},
		"lost labels": {
			hook: spoke(nil, func(from robotV1, to robotV2) error { to.Labels = nil; return v1ToV2(from, to) }), options: RoundTrips{Adjust: validRobot},
			want: []string{"metadata.labels is lost: it was {"},
		},
		"annotation that is left": {
			hook: spoke(func(from robotV2, to robotV1) error {
				metav1.SetMetaDataAnnotation(&to.ObjectMeta, "left", "1")
				return v2ToV1(from, to)
			}, nil),
			options: RoundTrips{Adjust: validRobot}, want: []string{`metadata.annotations.left is added: it is "1"`},
		},
		"changed item": {
			hook: spoke(nil, func(from robotV1, to robotV2) error {
				err := v1ToV2(from, to)
				for i := range to.Spec.Arms {
					to.Spec.Arms[i].Joints++
				}
				return err
			}), options: RoundTrips{Adjust: validRobot}, want: []string{"round trips of " + robotsCRD + ":", "spec.arms[].Joints is changed from "},
		},
		// Only objects other than the first have a zero behind a pointer.
		"lost zero": {
			hook: spoke(nil, func(from robotV1, to robotV2) error {
				err := v1ToV2(from, to)
				if to.Spec.Limit != nil && *to.Spec.Limit == 0 {
					to.Spec.Limit = nil
				}
				return err
			}), options: RoundTrips{Adjust: validRobot}, want: []string{"spec.limit is lost: it was 0"},
		},
		"admission hook": {hook: Validating(mapsOptions(), allowMaps), want: []string{"use Converting"}},
		"unstructured":   {hook: ConvertingUnstructured(robotsCRD, nil), want: []string{"use Converting"}},
		"incomplete":     {hook: Converting[robotV2](robotsCRD), want: []string{"only one version"}},
		"other metadata": {
			hook: Converting("i.example.com", Spoke(func(*bare, robotV2) error { return nil }, func(robotV2, *bare) error { return nil })),
			want: []string{"*webhook.bare does not embed metav1.ObjectMeta"},
		},
		"failure with text": {hook: spoke(nil, func(robotV1, robotV2) error { return errors.New("no") }), want: []string{"object 0: no"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := CheckRoundTrips(test.hook, test.options)
			if (err == nil) != (test.want == nil) {
				t.Fatal(err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error lacks %q:\n%v", want, err)
				}
			}
			if test.lacks != "" && strings.Contains(err.Error(), test.lacks) {
				t.Errorf("the error has %q:\n%v", test.lacks, err)
			}
		})
	}
}

// Each field of a full object has a value, and its encoding can be decoded again.
func TestFullObjects(t *testing.T) {
	t.Parallel()
	type recursive struct {
		Next *recursive `json:"next,omitempty"`
		Name string     `json:"name,omitempty"`
	}
	type all struct {
		Time      metav1.Time           `json:"time,omitzero"`
		Micro     metav1.MicroTime      `json:"micro,omitzero"`
		Duration  metav1.Duration       `json:"duration,omitzero"`
		Quantity  resource.Quantity     `json:"quantity,omitzero"`
		Port      intstr.IntOrString    `json:"port,omitzero"`
		Raw       runtime.RawExtension  `json:"raw,omitzero"`
		JSON      *apiextensionsv1.JSON `json:"json,omitempty"`
		Selector  *metav1.LabelSelector `json:"selector,omitempty"`
		Recursive recursive             `json:"recursive,omitzero"`
		Map       map[string][]int8     `json:"map,omitempty"`
		Bytes     []byte                `json:"bytes,omitempty"`
		Float     float32               `json:"float,omitempty"`
		Uint      uint16                `json:"uint,omitempty"`
		Bool      *bool                 `json:"bool,omitempty"`
		Any       any                   `json:"any,omitempty"`
		Array     [2]string             `json:"array,omitzero"`
	}
	kinds := map[intstr.Type]bool{}
	for seed := range uint64(20) {
		f := &filler{random: rand.New(rand.NewPCG(seed, 0)), full: true} //nolint:gosec // for a test
		value := &all{}
		f.fill(reflect.ValueOf(value).Elem())
		encoded, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]any
		if err := json.Unmarshal(encoded, &fields); err != nil || len(fields) != reflect.TypeFor[all]().NumField() {
			t.Fatalf("a field is empty: %s (%v)", encoded, err)
		}
		if err := json.Unmarshal(encoded, &all{}); err != nil {
			t.Fatal(err)
		}
		kinds[value.Port.Type] = true
		if !strings.HasPrefix(string(value.Raw.Raw), "{") || value.Recursive.Name == "" {
			t.Errorf("%s", encoded)
		}
	}
	if len(kinds) != 2 {
		t.Error("no port has a number, or none a name")
	}
}

// embedded is a struct that is not exported: its fields are encoded when it is embedded.
type embedded struct {
	Inner string `json:"inner,omitempty"`
}

// Embedded is embedded as a pointer.
type Embedded struct {
	Pointed string `json:"pointed,omitempty"`
}

type (
	recursiveList []recursiveList
	recursiveMap  map[string]recursiveMap
	node          struct {
		Name     string           `json:"name,omitempty"`
		Children map[string]*node `json:"children,omitempty"`
		List     []*node          `json:"list,omitempty"`
	}
)

// Types that schemas of custom resources rarely have are filled, and end.
func TestFillerOfUnusualTypes(t *testing.T) {
	t.Parallel()
	type all struct {
		embedded
		*Embedded
		List  recursiveList      `json:"list,omitempty"`
		Map   recursiveMap       `json:"map,omitempty"`
		Node  *node              `json:"node,omitempty"`
		IP    net.IP             `json:"ip,omitempty"`
		Addr  netip.Addr         `json:"addr,omitzero"`
		Ports map[netip.Addr]int `json:"ports,omitempty"`
		Time  *time.Time         `json:"time,omitempty"`
		None  **string           `json:"none,omitempty"`
		Enums map[int8]*bool     `json:"enums,omitempty"`
	}
	for seed := range uint64(20) {
		f := &filler{random: rand.New(rand.NewPCG(seed, 0)), full: true} //nolint:gosec // for a test
		value := &all{}
		f.fill(reflect.ValueOf(value).Elem())
		encoded, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]any
		if err := json.Unmarshal(encoded, &fields); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"inner", "pointed", "list", "map", "node", "ip", "addr", "ports", "time", "none", "enums"} {
			if fields[name] == nil {
				t.Errorf("%s is empty: %s", name, encoded)
			}
		}
	}
}
