package apiserver

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/fields"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ConfigMaps returns the kind ConfigMap.
func ConfigMaps() *Kind {
	k := Builtin[corev1.ConfigMap](corev1.SchemeGroupVersion.WithKind("ConfigMap"), "configmaps", corev1.AddToScheme)
	k.ShortNames = []string{"cm"}
	k.Rules = Rules{
		Default: func(obj Object) {
			if c := obj.(*corev1.ConfigMap); c.Data == nil {
				c.Data = map[string]string{}
			}
		},
		Stored: func(obj Object) bool {
			c := obj.(*corev1.ConfigMap)
			return storeBytes(&c.BinaryData)
		},
		Validate: func(obj, old Object) field.ErrorList {
			c := obj.(*corev1.ConfigMap)
			errs := ValidateCoreMetadataUpdate(obj, old)
			if old != nil {
				before := old.(*corev1.ConfigMap)
				if before.Immutable != nil && *before.Immutable {
					errs = append(errs, immutable(c.Immutable, c.Data, before.Data)...)
					if !reflect.DeepEqual(c.BinaryData, before.BinaryData) {
						errs = append(errs, field.Forbidden(field.NewPath("binaryData"), immutableMessage))
					}
				}
			}
			return append(errs, validateConfigMap(c)...)
		},
	}
	return k
}

// storeBytes changes data to what the real server reads from etcd, where it is protobuf: no map if it is empty, and
// empty values in place of nil. It reports whether there were nil values: they have other bytes than empty ones.
func storeBytes(data *map[string][]byte) (rewritten bool) {
	if len(*data) == 0 {
		*data = nil
	}
	for key, value := range *data {
		if value == nil {
			(*data)[key] = []byte{}
			rewritten = true
		}
	}
	return rewritten
}

func validateConfigMap(c *corev1.ConfigMap) field.ErrorList {
	errs := ValidateCoreMetadata(c, true, validation.NameIsDNSSubdomain)
	size := 0
	for _, key := range slices.Sorted(mapKeys(c.Data)) {
		path := field.NewPath("data").Key(key)
		for _, message := range utilvalidation.IsConfigMapKey(key) {
			errs = append(errs, field.Invalid(path, key, message))
		}
		if _, both := c.BinaryData[key]; both {
			errs = append(errs, field.Invalid(path, key, "duplicate of key present in binaryData"))
		}
		size += len(c.Data[key])
	}
	for _, key := range slices.Sorted(mapKeys(c.BinaryData)) {
		for _, message := range utilvalidation.IsConfigMapKey(key) {
			errs = append(errs, field.Invalid(field.NewPath("binaryData").Key(key), key, message))
		}
		size += len(c.BinaryData[key])
	}
	if size > corev1.MaxSecretSize {
		errs = append(errs, field.TooLong(field.NewPath(""), "", corev1.MaxSecretSize))
	}
	return errs
}

const immutableMessage = "field is immutable when `immutable` is set"

// immutable checks an update of a ConfigMap or Secret with the field immutable.
func immutable[V any](isImmutable *bool, data, old map[string]V) field.ErrorList {
	var errs field.ErrorList
	if isImmutable == nil || !*isImmutable {
		errs = append(errs, field.Forbidden(field.NewPath("immutable"), immutableMessage))
	}
	if !reflect.DeepEqual(data, old) {
		errs = append(errs, field.Forbidden(field.NewPath("data"), immutableMessage))
	}
	return errs
}

// Secrets returns the kind Secret.
func Secrets() *Kind {
	k := Builtin[corev1.Secret](corev1.SchemeGroupVersion.WithKind("Secret"), "secrets", corev1.AddToScheme)
	k.Rules = Rules{
		Default: func(obj Object) {
			s := obj.(*corev1.Secret)
			if s.Type == "" {
				s.Type = corev1.SecretTypeOpaque
			}
			if len(s.StringData) > 0 && s.Data == nil {
				s.Data = map[string][]byte{}
			}
			for key, value := range s.StringData {
				s.Data[key] = []byte(value)
			}
			s.StringData = nil
		},
		Stored: func(obj Object) bool {
			s := obj.(*corev1.Secret)
			return storeBytes(&s.Data)
		},
		Validate: func(obj, old Object) field.ErrorList {
			s := obj.(*corev1.Secret)
			errs := ValidateCoreMetadataUpdate(obj, old)
			if old != nil {
				before := old.(*corev1.Secret)
				errs = append(errs, validation.ValidateImmutableField(s.Type, before.Type, field.NewPath("type"))...)
				if before.Immutable != nil && *before.Immutable {
					errs = append(errs, immutable(s.Immutable, s.Data, before.Data)...)
				}
			}
			return append(errs, validateSecret(s)...)
		},
		Fields:      func(obj Object) fields.Set { return fields.Set{"type": string(obj.(*corev1.Secret).Type)} },
		FieldLabels: []string{"type"},
		Warnings: func(obj, _ Object) []string {
			s := obj.(*corev1.Secret)
			if s.Type == corev1.SecretTypeTLS {
				if _, err := tls.X509KeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey]); err != nil {
					return []string{err.Error()}
				}
			}
			return nil
		},
	}
	return k
}

func validateSecret(s *corev1.Secret) field.ErrorList {
	errs := ValidateCoreMetadata(s, true, validation.NameIsDNSSubdomain)
	data := field.NewPath("data")
	size := 0
	for _, key := range slices.Sorted(mapKeys(s.Data)) {
		for _, message := range utilvalidation.IsConfigMapKey(key) {
			errs = append(errs, field.Invalid(data.Key(key), key, message))
		}
		size += len(s.Data[key])
	}
	if size > corev1.MaxSecretSize {
		errs = append(errs, field.TooLong(data, "", corev1.MaxSecretSize))
	}
	required := func(key string) {
		if _, exists := s.Data[key]; !exists {
			errs = append(errs, field.Required(data.Key(key), ""))
		}
	}
	docker := func(key string) {
		text, exists := s.Data[key]
		if !exists {
			required(key)
		} else if err := json.Unmarshal(text, &map[string]any{}); err != nil {
			errs = append(errs, field.Invalid(data.Key(key), "<secret contents redacted>", err.Error()))
		}
	}
	switch s.Type {
	case corev1.SecretTypeServiceAccountToken:
		if s.Annotations[corev1.ServiceAccountNameKey] == "" {
			errs = append(errs,
				field.Required(field.NewPath("metadata", "annotations").Key(corev1.ServiceAccountNameKey), ""))
		}
	case corev1.SecretTypeDockercfg:
		docker(corev1.DockerConfigKey)
	case corev1.SecretTypeDockerConfigJson:
		docker(corev1.DockerConfigJsonKey)
	case corev1.SecretTypeBasicAuth:
		_, username := s.Data[corev1.BasicAuthUsernameKey]
		_, password := s.Data[corev1.BasicAuthPasswordKey]
		if !username && !password {
			required(corev1.BasicAuthUsernameKey)
			required(corev1.BasicAuthPasswordKey)
		}
	case corev1.SecretTypeSSHAuth:
		if len(s.Data[corev1.SSHAuthPrivateKey]) == 0 {
			errs = append(errs, field.Required(data.Key(corev1.SSHAuthPrivateKey), ""))
		}
	case corev1.SecretTypeTLS:
		required(corev1.TLSCertKey)
		required(corev1.TLSPrivateKeyKey)
	}
	return errs
}

// Namespaces returns the kind Namespace, with the subresources status and finalize.
func Namespaces() *Kind {
	k := Builtin[corev1.Namespace](corev1.SchemeGroupVersion.WithKind("Namespace"), "namespaces", corev1.AddToScheme)
	k.ShortNames, k.ClusterScoped, k.Status = []string{"ns"}, true, true
	k.Rules = Rules{
		ReturnDeleted: true,
		Default: func(obj Object) {
			if obj.GetName() != "" {
				labelNamespace(obj)
			}
			if n := obj.(*corev1.Namespace); n.Status.Phase == "" {
				n.Status.Phase = corev1.NamespaceActive
			}
		},
		Prepare: func(obj, old Object) {
			n := obj.(*corev1.Namespace)
			if old != nil {
				n.Spec.Finalizers = old.(*corev1.Namespace).Spec.Finalizers
				return
			}
			n.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
			if !slices.Contains(n.Spec.Finalizers, corev1.FinalizerKubernetes) {
				n.Spec.Finalizers = append(n.Spec.Finalizers, corev1.FinalizerKubernetes)
			}
		},
		Canonicalize: labelNamespace,
		Validate: func(obj, old Object) field.ErrorList {
			errs := ValidateCoreMetadata(obj, false, validation.ValidateNamespaceName)
			path := field.NewPath("spec", "finalizers")
			errs = append(errs, validateNamespaceFinalizers(obj.(*corev1.Namespace), func(int) *field.Path {
				return path
			})...)
			return append(errs, ValidateCoreMetadataUpdate(obj, old)...)
		},
		ValidateSubresource: func(subresource string, obj, old Object) field.ErrorList {
			n := obj.(*corev1.Namespace)
			errs := ValidateCoreMetadataUpdate(obj, old)
			if subresource == "finalize" {
				return append(errs, validateNamespaceFinalizers(n, field.NewPath("spec", "finalizers").Index)...)
			}
			expected, when := corev1.NamespaceActive, "empty"
			if n.DeletionTimestamp != nil {
				expected, when = corev1.NamespaceTerminating, "not empty"
			}
			if n.Status.Phase != expected {
				errs = append(errs, field.Invalid(field.NewPath("status", "Phase"), n.Status.Phase,
					fmt.Sprintf("may only be '%s' if `deletionTimestamp` is %s", expected, when)))
			}
			return errs
		},
		Fields: func(obj Object) fields.Set {
			n := obj.(*corev1.Namespace)
			return fields.Set{"status.phase": string(n.Status.Phase), "name": n.Name}
		},
		FieldLabels: []string{"status.phase"},
	}
	return k
}

// labelNamespace sets the label that selects a namespace by its name.
func labelNamespace(obj Object) {
	n := obj.(*corev1.Namespace)
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	n.Labels[corev1.LabelMetadataName] = n.Name
}

func validateNamespaceFinalizers(n *corev1.Namespace, path func(int) *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, finalizer := range n.Spec.Finalizers {
		errs = append(errs, validation.ValidateFinalizerName(string(finalizer), path(i))...)
		errs = append(errs, validateQualifiedFinalizer(string(finalizer), path(i))...)
	}
	return errs
}

// Leases returns the kind Lease.
func Leases() *Kind {
	k := Builtin[coordinationv1.Lease](coordinationv1.SchemeGroupVersion.WithKind("Lease"), "leases",
		coordinationv1.AddToScheme)
	k.UnconditionalUpdate, k.CreateOnUpdate = false, true
	k.Rules = Rules{
		Prepare: func(obj, old Object) { // the feature CoordinatedLeaderElection is off by default
			spec := &obj.(*coordinationv1.Lease).Spec
			if old == nil || old.(*coordinationv1.Lease).Spec.Strategy == nil {
				spec.Strategy = nil
			}
			if old == nil || old.(*coordinationv1.Lease).Spec.PreferredHolder == nil {
				spec.PreferredHolder = nil
			}
		},
		Validate: func(obj, old Object) field.ErrorList {
			spec, path := obj.(*coordinationv1.Lease).Spec, field.NewPath("spec")
			errs := ValidateMetadataUpdate(obj, old)
			if old == nil {
				errs = ValidateMetadata(obj, true, validation.NameIsDNSSubdomain)
			}
			if d := spec.LeaseDurationSeconds; d != nil && *d <= 0 {
				errs = append(errs, field.Invalid(path.Child("leaseDurationSeconds"), d, "must be greater than 0"))
			}
			if n := spec.LeaseTransitions; n != nil && *n < 0 {
				errs = append(errs,
					field.Invalid(path.Child("leaseTransitions"), n, "must be greater than or equal to 0"))
			}
			return errs
		},
	}
	return k
}
