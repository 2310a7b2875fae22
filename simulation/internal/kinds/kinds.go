// Package kinds has the kinds of a simulated cluster.
package kinds

import (
	"reflect"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apiserver/builtin"
)

// All returns the built-in kinds: those with the rules of the real server, and the others, which have the rules for
// metadata, status, generation and versions only.
func All() ([]*apiserver.Kind, error) {
	known := builtin.Kinds()
	further, err := otherKinds(known)
	return append(known, further...), err
}

// otherKinds returns the built-in kinds that known lacks.
func otherKinds(known []*apiserver.Kind) ([]*apiserver.Kind, error) {
	scheme := runtime.NewScheme()
	add := runtime.NewSchemeBuilder(
		admissionregistrationv1.AddToScheme, appsv1.AddToScheme, autoscalingv2.AddToScheme, batchv1.AddToScheme,
		certificatesv1.AddToScheme,
		corev1.AddToScheme, discoveryv1.AddToScheme, eventsv1.AddToScheme, networkingv1.AddToScheme, nodev1.AddToScheme,
		policyv1.AddToScheme, rbacv1.AddToScheme, schedulingv1.AddToScheme, storagev1.AddToScheme,
	)
	if err := add.AddToScheme(scheme); err != nil {
		return nil, err
	}
	// The kinds of certificates.k8s.io are newer than the version of the server.
	notServed := []string{"ComponentStatus", "ClusterTrustBundle", "PodCertificateRequest"}
	var kinds []*apiserver.Kind
	for gvk, goType := range scheme.AllKnownTypes() {
		list := gvk.GroupVersion().WithKind(gvk.Kind + "List")
		isKnown := slices.ContainsFunc(known, func(k *apiserver.Kind) bool { return k.GroupVersionKind == gvk })
		// Kinds without a list or without metadata are not stored: reviews, bindings, options, discovery.
		if isKnown || !scheme.Recognizes(list) || !reflect.PointerTo(goType).
			Implements(reflect.TypeFor[apiserver.Object]()) || slices.Contains(notServed, gvk.Kind) {
			continue
		}
		resource, _ := meta.UnsafeGuessKindToResource(gvk)
		_, hasStatus := goType.FieldByName("Status")
		kinds = append(kinds, &apiserver.Kind{
			GroupVersionKind: gvk, Resource: resource.Resource,
			ClusterScoped: slices.Contains(clusterScoped(), gvk.Kind),
			ShortNames:    shortNames()[gvk.Kind], Categories: categories(gvk),
			Status:         hasStatus && gvk.Kind != "CSINode", // whose status is newer than the version of the server
			StatusOnCreate: gvk.Kind == "Node",                 // the kubelet registers it with its status
			Generation:     countsGenerations(gvk), UnconditionalUpdate: !requiresVersion(gvk),
			CreateOnUpdate: createsOnUpdate(gvk), Rules: rulesOf(gvk),
			NewObject: func() apiserver.Object { return reflect.New(goType).Interface().(apiserver.Object) },
			AddToScheme: func(s *runtime.Scheme) error {
				s.AddKnownTypeWithName(gvk, reflect.New(goType).Interface().(runtime.Object))
				s.AddKnownTypeWithName(list, reflect.New(scheme.AllKnownTypes()[list]).Interface().(runtime.Object))
				metav1.AddToGroupVersion(s, gvk.GroupVersion())
				return nil
			},
		})
		if gvk.Kind == "CertificateSigningRequest" {
			builtin.AddApproval(kinds[len(kinds)-1])
		}
	}
	slices.SortFunc(kinds, func(a, b *apiserver.Kind) int {
		return strings.Compare(a.GroupVersionKind.String(), b.GroupVersionKind.String())
	})
	return kinds, nil
}

func clusterScoped() []string {
	return []string{
		"CSIDriver", "CSINode", "CertificateSigningRequest", "ClusterRole", "ClusterRoleBinding", "IPAddress",
		"IngressClass",
		"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "MutatingWebhookConfiguration", "Node",
		"PersistentVolume",
		"PriorityClass", "RuntimeClass", "ServiceCIDR", "StorageClass", "ValidatingAdmissionPolicy",
		"ValidatingAdmissionPolicyBinding",
		"ValidatingWebhookConfiguration", "VolumeAttachment", "VolumeAttributesClass",
	}
}

// shortNames returns the short names of the kinds that have some.
func shortNames() map[string][]string {
	return map[string][]string{
		"CertificateSigningRequest": {"csr"}, "CronJob": {"cj"}, "Endpoints": {"ep"},
		"HorizontalPodAutoscaler": {"hpa"}, "IPAddress": {"ip"},
		"Ingress": {"ing"}, "LimitRange": {"limits"}, "NetworkPolicy": {"netpol"}, "Node": {"no"},
		"PersistentVolume":      {"pv"},
		"PersistentVolumeClaim": {"pvc"}, "PodDisruptionBudget": {"pdb"}, "PriorityClass": {"pc"},
		"ReplicationController": {"rc"},
		"ResourceQuota":         {"quota"}, "ServiceAccount": {"sa"}, "StorageClass": {"sc"},
		"VolumeAttributesClass": {"vac"},
	}
}

// categories returns the categories of a kind, such as the one of kubectl get all.
func categories(gvk schema.GroupVersionKind) []string {
	switch {
	case slices.Contains([]string{"CronJob", "HorizontalPodAutoscaler", "ReplicationController"}, gvk.Kind):
		return []string{"all"}
	case gvk.Group == admissionregistrationv1.GroupName:
		return []string{"api-extensions"}
	}
	return nil
}
