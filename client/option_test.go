package client_test

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/compat"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/readiness"
)

// TestFunctionsAcceptOnlyTheirOptions calls each function with each option. The compiler rejects options of other
// types: it accepts one if and only if the type that the option is returned as is assignable to that of the function's
// options. The function itself rejects the remaining ones, before any request.
func TestFunctionsAcceptOnlyTheirOptions(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	options := map[string]reflect.Value{}
	reads := []string{"FromAPI", "IfUnchanged", "NotOlderThan", "OfKind", "PageSize", "Subresource", "SubresourceOf"}
	writes := []string{
		"ConfigurationHash", "DryRun", "FieldOwner", "FieldValidation", "Force", "IfAbsent", "IfUnchanged", "Subresource",
		"SubresourceOf",
	}
	deletes, waits := []string{"DryRun", "GracePeriod", "IfUnchanged", "Propagation"}, []string{"OfKind", "Timeout"}
	for name, call := range map[string][]any{
		"ConfigurationHash": {client.ConfigurationHash, "example.com/hash"}, "DryRun": {client.DryRun},
		"FieldOwner": {client.FieldOwner, "me"}, "FieldValidation": {client.FieldValidation, "Warn"}, "Force": {client.Force},
		"FromAPI": {client.FromAPI}, "GracePeriod": {client.GracePeriod, time.Second}, "IfAbsent": {client.IfAbsent},
		"IfUnchanged": {client.IfUnchanged}, "NotOlderThan": {client.NotOlderThan, "1"},
		"OfKind": {client.OfKind, corev1.SchemeGroupVersion.WithKind("Pod")}, "PageSize": {client.PageSize, int64(1)},
		"Propagation": {client.Propagation, metav1.DeletePropagationOrphan}, "Subresource": {client.Subresource, "status"},
		"SubresourceOf": {client.SubresourceOf, kube.Object(database()), "status"}, "Timeout": {client.Timeout, time.Second},
	} {
		options[name] = reflect.ValueOf(call[0]).Call(valuesOf(call[1:]))[0]
	}
	list := func(ctx context.Context, c *client.Client, s kube.Selection, options ...client.ReadOption) (err error) {
		for _, err = range client.List[*corev1.Pod](ctx, c, s, options...) {
			break
		}
		return err
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p", UID: "u", ResourceVersion: "1"}}
	key, pods := kube.KeyOf(pod), kube.Selection{Namespaces: []string{"shop"}, LabelSelector: "app=web"}
	pages := []string{"FromAPI", "NotOlderThan", "PageSize"}
	write := []string{"DryRun", "FieldOwner", "FieldValidation"}
	apply := slices.DeleteFunc(slices.Clone(writes), func(option string) bool { return option == "SubresourceOf" })
	update := slices.Concat(write, []string{"Subresource", "SubresourceOf"})
	several := []string{"DryRun", "GracePeriod", "Propagation"}
	matches := func(*corev1.Pod) (bool, error) { return false, nil }
	edit := func(_, _ map[string]string) {}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"a":1}`))
	for name, test := range map[string]struct {
		call     []any // the function and its arguments
		compiles []string
		accepts  []string
	}{
		"Get":             {[]any{client.Get[*corev1.Pod], key}, reads, []string{"FromAPI", "NotOlderThan", "OfKind", "Subresource", "SubresourceOf"}},
		"Exists":          {[]any{client.Exists[*corev1.Pod], key}, reads, []string{"FromAPI", "NotOlderThan", "OfKind"}},
		"GetLive":         {[]any{client.GetLive[*corev1.Pod], pod}, reads, []string{"IfUnchanged"}},
		"List":            {[]any{list, pods}, reads, pages},
		"All":             {[]any{client.All[*corev1.Pod], pods}, reads, pages},
		"Keys":            {[]any{client.Keys[*corev1.Pod], pods}, reads, pages},
		"ListPage":        {[]any{client.ListPage[*corev1.Pod], pods, ""}, reads, pages},
		"Watch":           {[]any{client.Watch[*corev1.Pod], pods}, reads, []string{"NotOlderThan"}},
		"Create":          {[]any{client.Create[*corev1.Pod], pod}, writes, slices.Concat(write, []string{"SubresourceOf"})},
		"CreateOrUpdate":  {[]any{compat.CreateOrUpdate[*corev1.Pod], pod, (func(*corev1.Pod) error)(nil)}, writes, write},
		"CreateOrPatch":   {[]any{compat.CreateOrPatch[*corev1.Pod], pod, (func(*corev1.Pod) error)(nil)}, writes, write},
		"EditMetadata":    {[]any{client.EditMetadata[*corev1.Pod], pod, edit}, writes, write},
		"EnsureNamespace": {[]any{client.EnsureNamespace, "shop", map[string]string(nil)}, writes, write},
		"Update":          {[]any{client.Update[*corev1.Pod], pod}, writes, update},
		"Patch":           {[]any{client.Patch[*corev1.Pod], pod, patch}, writes, update},
		"Apply":           {[]any{client.Apply[*corev1.Pod], pod}, writes, apply},
		"TakeOver":        {[]any{client.TakeOver[*corev1.Pod], pod, []string{"me"}}, writes, []string{"DryRun", "FieldOwner", "IfUnchanged"}},
		"Delete":          {[]any{client.Delete[*corev1.Pod], pod}, deletes, deletes},
		"DeleteLive":      {[]any{client.DeleteLive[*corev1.Pod], pod, (func(*corev1.Pod) error)(nil)}, deletes, deletes},
		"ScaleLive":       {[]any{client.ScaleLive[*corev1.Pod], pod, int32(1), (func(*corev1.Pod) error)(nil)}, []string{"DryRun", "IfUnchanged"}, []string{"DryRun", "IfUnchanged"}},
		"DeleteAllOf":     {[]any{client.DeleteAllOf[*corev1.Pod], pods}, deletes, several},
		"DeleteMatching":  {[]any{client.DeleteMatching[*corev1.Pod], pods, matches}, deletes, several},
		"WaitFor":         {[]any{client.WaitFor[*corev1.Pod], key, readiness.Check(readiness.Of)}, waits, waits},
		"WaitDeleted":     {[]any{client.WaitDeleted, kube.Object(pod)}, waits, waits},
		"WaitForObjects":  {[]any{client.WaitForObjects[*corev1.Pod], pods, 1, readiness.Check(nil)}, waits, []string{"Timeout"}},
		"WaitForNone":     {[]any{client.WaitForNone[*corev1.Pod], pods}, waits, []string{"Timeout"}},
	} {
		function := reflect.ValueOf(test.call[0])
		accepted := function.Type().In(function.Type().NumIn() - 1).Elem()
		args := valuesOf(append([]any{t.Context(), c}, test.call[1:]...))
		for option, value := range options {
			compiles := value.Type().AssignableTo(accepted)
			if want := slices.Contains(test.compiles, option); compiles != want {
				t.Errorf("%s with %s compiles: %t, want %t", name, option, compiles, want)
			}
			if !compiles || slices.Contains(test.accepts, option) {
				continue
			}
			results := function.Call(append(slices.Clone(args), value))
			err, _ := reflect.TypeAssert[error](results[len(results)-1])
			if want := "option " + option + ": this call accepts only "; err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s with %s: the error is %v", name, option, err)
			}
		}
		for _, option := range test.accepts { // together with one that is not accepted, so that no request is made
			with := []reflect.Value{options[option], reflect.Zero(accepted)}
			results := function.Call(append(slices.Clone(args), with...))
			err, _ := reflect.TypeAssert[error](results[len(results)-1])
			if err == nil || !strings.Contains(err.Error(), "an option is nil") || strings.Contains(err.Error(), "option "+option) {
				t.Errorf("%s with %s: the error is %v", name, option, err)
			}
		}
	}
	server.expectNoRequests(t)
}

func valuesOf(args []any) (values []reflect.Value) {
	for _, arg := range args {
		values = append(values, reflect.ValueOf(arg))
	}
	return values
}

// A call is for one subresource.
func TestSecondSubresourceRejected(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	_, err := client.Update(t.Context(), c, database(), client.Subresource("status"), client.Subresource("scale"))
	if err == nil || !strings.Contains(err.Error(), `option Subresource: "scale": the call is for "status" already`) {
		t.Errorf("the error is %v", err)
	}
	server.expectNoRequests(t)
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
