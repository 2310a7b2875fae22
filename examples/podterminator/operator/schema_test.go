package operator

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel-go/evenkeel/examples/podterminator/api/v1alpha1"
	"github.com/evenkeel-go/evenkeel/examples/podterminator/config"
)

func TestSchemaRejectsInvalidSpecs(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t place) {
		client := terminators(t)
		for name, tt := range map[string]struct {
			change  string // of a valid spec, as a merge
			message string // empty: accepted
		}{
			"a valid spec":                {change: `{}`},
			"everything, once a second":   {change: `{"percent":100,"period":"1s"}`},
			"a compound period":           {change: `{"period":"1h30m"}`},
			"percent above 100":           {change: `{"percent":101}`, message: "should be less than or equal to 100"},
			"negative percent":            {change: `{"percent":-1}`, message: "should be greater than or equal to 0"},
			"a negative minimum":          {change: `{"minAlive":-1}`, message: "should be greater than or equal to 0"},
			"a period below 1s":           {change: `{"period":"999ms"}`, message: "must be at least 1s"},
			"a period without a unit":     {change: `{"period":"30"}`, message: "spec.period"},
			"a period Go cannot read":     {change: `{"period":"1 day"}`, message: "spec.period"},
			"the longest period":          {change: `{"period":"99999h99999h999h"}`},
			"a fraction of a period":      {change: `{"period":"1.000000001s"}`},
			"a sum above Go's maximum":    {change: `{"period":"5124096h"}`, message: "spec.period"},
			"a number above Go's maximum": {change: `{"period":"9223372036854775808s"}`, message: "spec.period"},
			"a fraction below 1ns":        {change: `{"period":"1.0000000001s"}`, message: "spec.period"},
			"many small parts":            {change: `{"period":"9999h9999h9999h9999h"}`, message: "spec.period"},
			"no period":                   {change: `{"period":null}`, message: "spec.period"},
			"no percentage":               {change: `{"percent":null}`, message: "spec.percent"},
			"no selector":                 {change: `{"selector":null}`, message: "spec.selector"},
			"an empty selector":           {change: `{"selector":{}}`, message: "should have at least 1 properties"},
			"a misspelt field":            {change: `{"minimumAlive":1}`, message: `unknown field "spec.minimumAlive"`},
		} {
			spec := map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"app": "web"}}, "percent": 50, "period": "30s"}
			var change map[string]any
			if err := json.Unmarshal([]byte(tt.change), &change); err != nil {
				t.Fatal(err)
			}
			for field, value := range change {
				spec[field] = value
				if value == nil {
					delete(spec, field)
				}
			}
			body, err := json.Marshal(map[string]any{
				"apiVersion": v1alpha1.GroupVersion().String(), "kind": v1alpha1.Kind,
				"metadata": map[string]any{"name": "schema"}, "spec": spec,
			})
			if err != nil {
				t.Fatal(err)
			}
			err = client.Post().Namespace("default").Resource(v1alpha1.Resource).
				Param("dryRun", "All").Param("fieldValidation", "Strict").Body(body).Do(t.Context()).Error()
			if period, ok := spec["period"].(string); ok && err == nil {
				if _, goErr := time.ParseDuration(period); goErr != nil {
					t.Errorf("%s: the API server accepts a spec that Go cannot decode: %v", name, goErr)
				}
			}
			if (tt.message == "") != (err == nil) || !strings.Contains(fmt.Sprint(err), tt.message) {
				t.Errorf("%s: the error is %v, want one with %q", name, err, tt.message)
			}
		}
	})
}

// The API server drops fields that are in the Go type but not in the schema.
func TestSchemaHasAllFields(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t place) {
		f := newFixture(t, 0)
		full := f.terminator(50, time.Hour)
		full.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "In", Values: []string{"b"}}}
		full.Spec.MinAlive, full.Spec.DryRun = 1, true
		pods := refs("a", "b")
		now := metav1.NewMicroTime(time.UnixMicro(1_700_000_000_000_001))
		status := v1alpha1.PodTerminatorStatus{
			ObservedGeneration: 1,
			Conditions: []metav1.Condition{{
				Type: "Ready", Status: "True", Reason: "Test", Message: "a test", ObservedGeneration: 1,
				LastTransitionTime: metav1.NewTime(time.Unix(1_700_000_000, 0)),
			}},
			Rounds: 1, LastRun: &now, NextRun: &now, TerminatedTotal: 2,
			LastTerminated: pods, WouldTerminate: pods, Marked: pods,
			Plan: &v1alpha1.Plan{DryRun: true, Victims: pods},
		}
		wantSpec := full.Spec
		created := f.create(full)
		created.Status = status
		got := &v1alpha1.PodTerminator{}
		err := terminators(t).Put().Namespace(f.namespace).Resource(v1alpha1.Resource).Name(created.Name).SubResource("status").
			Param("fieldValidation", "Strict").Body(created).Do(t.Context()).Into(got)
		if err != nil {
			t.Fatalf("write the full status: %v", err)
		}
		if diff := cmp.Diff(wantSpec, got.Spec); diff != "" {
			t.Errorf("the spec after a round trip (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(status, got.Status); diff != "" {
			t.Errorf("the status after a round trip (-want +got):\n%s", diff)
		}
	})
}

func TestSampleIsValid(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t place) {
		sample := &v1alpha1.PodTerminator{}
		if err := yaml.UnmarshalStrict(config.Sample, sample); err != nil {
			t.Fatalf("read the sample: %v", err)
		}
		err := terminators(t).Post().Namespace("default").Resource(v1alpha1.Resource).
			Param("dryRun", "All").Param("fieldValidation", "Strict").Body(sample).Do(t.Context()).Error()
		if err != nil {
			t.Errorf("create the sample: %v", err)
		}
	})
}
