package kinds

import (
	"maps"
	"net/netip"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

// countsGenerations reports whether the real server increments metadata.generation with each change of the content.
func countsGenerations(gvk schema.GroupVersionKind) bool {
	kinds := []string{
		"CronJob", "EndpointSlice", "Ingress", "IngressClass", "NetworkPolicy", "PodTemplate", "ReplicationController",
	}
	return gvk.Group == admissionregistrationv1.GroupName || slices.Contains(kinds, gvk.Kind)
}

// requiresVersion reports whether updates need a resourceVersion.
func requiresVersion(gvk schema.GroupVersionKind) bool {
	kinds := []string{"CSIDriver", "CSINode", "CSIStorageCapacity", "RuntimeClass", "VolumeAttachment"}
	return gvk.Group == admissionregistrationv1.GroupName || slices.Contains(kinds, gvk.Kind)
}

// createsOnUpdate reports whether the update of a missing object creates it.
func createsOnUpdate(gvk schema.GroupVersionKind) bool {
	kinds := []string{"Endpoints", "LimitRange", "RuntimeClass"}
	return gvk.Group == rbacv1.GroupName || slices.Contains(kinds, gvk.Kind)
}

// rulesOf returns the rules for metadata, and those for what the real server sets and keeps in objects of a kind.
func rulesOf(gvk schema.GroupVersionKind) apiserver.Rules {
	rules := metadataRules(gvk)
	statusOnly := []string{"ServiceCIDR", "ValidatingAdmissionPolicy", "VolumeAttachment"}
	rules.StatusIgnoresMetadata = slices.Contains(statusOnly, gvk.Kind)
	rules.OrphanDependents = gvk.Kind == "ReplicationController"
	rules.ReturnDeleted = slices.Contains([]string{
		"CSIDriver", "CSINode", "PersistentVolume", "PersistentVolumeClaim", "PodTemplate", "ResourceQuota",
		"ServiceAccount", "StorageClass", "VolumeAttachment", "VolumeAttributesClass",
	}, gvk.Kind)
	switch gvk.Kind {
	case "CSIDriver":
		rules.Prepare = func(obj, old apiserver.Object) { // a new one has no generation
			driver := obj.(*storagev1.CSIDriver)
			if old != nil && !equality.Semantic.DeepEqual(driver.Spec, old.(*storagev1.CSIDriver).Spec) {
				obj.SetGeneration(old.GetGeneration() + 1)
			}
		}
	case "EndpointSlice":
		rules.Prepare = func(obj, old apiserver.Object) { // labels count, too
			if old != nil && !maps.Equal(obj.GetLabels(), old.GetLabels()) {
				obj.SetGeneration(old.GetGeneration() + 1)
			}
		}
	case "PriorityClass":
		rules.Prepare = func(obj, old apiserver.Object) { // never incremented
			if old == nil {
				obj.SetGeneration(1)
			}
		}
	case "ServiceAccount":
		rules.Prepare = func(obj, _ apiserver.Object) {
			for i, secret := range obj.(*corev1.ServiceAccount).Secrets {
				obj.(*corev1.ServiceAccount).Secrets[i] = corev1.ObjectReference{Name: secret.Name}
			}
		}
	case "PersistentVolume":
		rules.Default, rules.Prepare, rules.PrepareStatus = defaultVolume, prepareVolume, prepareVolumeStatus
	case "PersistentVolumeClaim":
		rules.Default, rules.Stored = defaultClaim, storeClaim
	}
	return rules
}

func defaultVolume(obj apiserver.Object) {
	v := obj.(*corev1.PersistentVolume)
	if v.Status.Phase == "" {
		v.Status.Phase = corev1.VolumePending
	}
	if v.Spec.PersistentVolumeReclaimPolicy == "" {
		v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	}
	if v.Spec.VolumeMode == nil {
		v.Spec.VolumeMode = new(corev1.PersistentVolumeFilesystem)
	}
}

func prepareVolume(obj, old apiserver.Object) {
	if old == nil {
		obj.(*corev1.PersistentVolume).Status = corev1.PersistentVolumeStatus{
			Phase: corev1.VolumePending, LastPhaseTransitionTime: now(),
		}
	}
}

// prepareVolumeStatus sets the time of a new phase, unless the request does, and keeps that of the same phase.
func prepareVolumeStatus(obj, old apiserver.Object) {
	status, before := &obj.(*corev1.PersistentVolume).Status, &old.(*corev1.PersistentVolume).Status
	at := status.LastPhaseTransitionTime
	switch {
	case status.Phase == before.Phase && at == nil:
		status.LastPhaseTransitionTime = before.LastPhaseTransitionTime.DeepCopy()
	case status.Phase != before.Phase && (at == nil || at.Equal(before.LastPhaseTransitionTime)):
		status.LastPhaseTransitionTime = now()
	}
}

func now() *metav1.Time { return new(metav1.Now().Rfc3339Copy()) }

func defaultClaim(obj apiserver.Object) {
	c := obj.(*corev1.PersistentVolumeClaim)
	storeClaim(c)
	if c.Spec.VolumeMode == nil {
		c.Spec.VolumeMode = new(corev1.PersistentVolumeFilesystem)
	}
}

// storeClaim sets the phase of a new claim, which the real server stores without one.
func storeClaim(obj apiserver.Object) (rewritten bool) {
	status := &obj.(*corev1.PersistentVolumeClaim).Status
	if rewritten = status.Phase == ""; rewritten {
		status.Phase = corev1.ClaimPending
	}
	return rewritten
}

// metadataRules are the rules for the names and finalizers of a kind.
func metadataRules(gvk schema.GroupVersionKind) apiserver.Rules {
	namespaced := !slices.Contains(clusterScoped(), gvk.Kind)
	create, update := apiserver.ValidateCoreMetadata, apiserver.ValidateCoreMetadataUpdate
	if gvk.Group == admissionregistrationv1.GroupName || gvk.Group == nodev1.GroupName { // allow more finalizers
		create, update = apiserver.ValidateMetadata, apiserver.ValidateMetadataUpdate
	}
	name := validation.NameIsDNSSubdomain
	switch {
	case gvk.Group == rbacv1.GroupName, gvk.Group == certificatesv1.GroupName:
		name = func(name string, _ bool) []string { return content.IsPathSegmentName(name) }
	case gvk.Kind == "IPAddress":
		name = func(name string, _ bool) []string {
			if ip, err := netip.ParseAddr(name); err != nil || ip.String() != name {
				return []string{"must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"}
			}
			return nil
		}
	}
	return apiserver.Rules{Validate: func(obj, old apiserver.Object) field.ErrorList {
		if old != nil {
			return update(obj, old)
		}
		errs := create(obj, namespaced, name)
		const longest = 52 // a Job gets a name with 11 more characters
		if gvk.Kind == "CronJob" && len(obj.GetName()) > longest {
			errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), obj.GetName(),
				"must be no more than 52 characters"))
		}
		return errs
	}}
}
