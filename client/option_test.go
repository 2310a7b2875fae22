package client_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
)

// TestFunctionsAcceptOnlyTheirOptions compares, for each option and function, the type that the option is
// returned as with the type of the function's options. The compiler accepts an option if and only if the
// one is assignable to the other.
func TestFunctionsAcceptOnlyTheirOptions(t *testing.T) {
	t.Parallel()
	options := map[string]any{
		"AllNamespaces":     client.AllNamespaces,
		"ConfigurationHash": client.ConfigurationHash, "DryRun": client.DryRun, "FieldOwner": client.FieldOwner,
		"FieldSelector": client.FieldSelector, "FieldValidation": client.FieldValidation, "Force": client.Force,
		"FromAPI": client.FromAPI, "GracePeriod": client.GracePeriod, "IfAbsent": client.IfAbsent,
		"IfUnchanged": client.IfUnchanged, "InNamespace": client.InNamespace, "LabelSelector": client.LabelSelector,
		"NotOlderThan": client.NotOlderThan, "OfKind": client.OfKind, "PageSize": client.PageSize,
		"Propagation": client.Propagation, "Subresource": client.Subresource, "Timeout": client.Timeout,
		"WithLabels": client.WithLabels,
	}
	selectors := []string{"AllNamespaces", "FieldSelector", "InNamespace", "LabelSelector", "OfKind", "WithLabels"}
	list := slices.Concat(selectors, []string{"FromAPI", "NotOlderThan", "PageSize"})
	write := []string{"DryRun", "FieldOwner", "FieldValidation"}
	update := slices.Concat(write, []string{"Subresource"})
	apply := slices.Concat(update, []string{"ConfigurationHash", "Force", "IfAbsent", "IfUnchanged"})
	remove := []string{"DryRun", "GracePeriod", "IfUnchanged", "Propagation"}
	for name, test := range map[string]struct {
		function any
		accepts  []string
	}{
		"Get":                {client.Get[*corev1.Pod], []string{"FromAPI", "NotOlderThan", "OfKind", "Subresource"}},
		"Exists":             {client.Exists[*corev1.Pod], []string{"FromAPI", "NotOlderThan", "OfKind"}},
		"List":               {client.List[*corev1.Pod], list},
		"All":                {client.All[*corev1.Pod], list},
		"Keys":               {client.Keys[*corev1.Pod], list},
		"Watch":              {client.Watch[*corev1.Pod], slices.Concat(selectors, []string{"NotOlderThan"})},
		"GetLive":            {client.GetLive[*corev1.Pod], []string{"IfUnchanged"}},
		"Create":             {client.Create[*corev1.Pod], write},
		"CreateOrUpdate":     {client.CreateOrUpdate[*corev1.Pod], write},
		"CreateOrPatch":      {client.CreateOrPatch[*corev1.Pod], write},
		"CreateSubresource":  {client.CreateSubresource[*corev1.Binding], write},
		"UpdateSubresource":  {client.UpdateSubresource[*autoscalingv1.Scale], write},
		"PatchSubresource":   {client.PatchSubresource[*autoscalingv1.Scale], write},
		"SetLabels":          {client.SetLabels[*corev1.Pod], write},
		"RemoveLabels":       {client.RemoveLabels[*corev1.Pod], write},
		"SetAnnotations":     {client.SetAnnotations[*corev1.Pod], write},
		"RemoveAnnotations":  {client.RemoveAnnotations[*corev1.Pod], write},
		"EnsureNamespace":    {client.EnsureNamespace, write},
		"Update":             {client.Update[*corev1.Pod], update},
		"Patch":              {client.Patch[*corev1.Pod], update},
		"Apply":              {client.Apply[*corev1.Pod], apply},
		"ApplyConfiguration": {client.ApplyConfiguration, apply},
		"TakeOver":           {client.TakeOver[*corev1.Pod], []string{"DryRun", "FieldOwner", "IfUnchanged"}},
		"Delete":             {client.Delete[*corev1.Pod], remove},
		"DeleteLive":         {client.DeleteLive[*corev1.Pod], remove},
		"ScaleLive":          {client.ScaleLive[*appsv1.Deployment], []string{"DryRun", "IfUnchanged"}},
		"DeleteAllOf": {
			client.DeleteAllOf[*corev1.Pod], slices.Concat(selectors, []string{"DryRun", "GracePeriod", "Propagation"}),
		},
		"WaitFor":     {client.WaitFor[*corev1.Pod], []string{"OfKind", "Timeout"}},
		"WaitDeleted": {client.WaitDeleted, []string{"OfKind", "Timeout"}},
	} {
		function := reflect.TypeOf(test.function)
		if !function.IsVariadic() {
			t.Errorf("%s has no options", name)
			continue
		}
		accepted := function.In(function.NumIn() - 1).Elem()
		for option, constructor := range options {
			compiles := reflect.TypeOf(constructor).Out(0).AssignableTo(accepted)
			if want := slices.Contains(test.accepts, option); compiles != want {
				t.Errorf("%s accepts %s: %t, want %t", name, option, compiles, want)
			}
		}
	}
}

func TestWaitDeletedOfKind(t *testing.T) {
	t.Parallel()
	s := newWaitServer(t)
	s.put(1)
	obj := s.Object("deployments", webKey())
	obj.SetGroupVersionKind(schema.GroupVersionKind{}) // an informer of metadata has lost its kind
	s.delete()
	kind := appsv1.SchemeGroupVersion.WithKind("Deployment")
	if err := client.WaitDeleted(t.Context(), s.client, obj, client.OfKind(kind), client.Timeout(time.Minute)); err != nil {
		t.Error(err)
	}
}

func TestDeleteIfUnchangedRequiresAResourceVersion(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	obj := database()
	obj.ResourceVersion = ""
	if err := client.Delete(t.Context(), c, obj, client.IfUnchanged()); err == nil || server.log() != nil {
		t.Errorf("%v; the requests are %q", err, server.log())
	}
}
