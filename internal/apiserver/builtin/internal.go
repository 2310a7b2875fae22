package builtin

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
)

// internal encodes a value as the real server shows it in messages: as its internal type. Such types have the fields of
// version v1 with their Go names, and nothing is omitted. Values of apimachinery's types have their usual form.
func internal(value any) json.RawMessage {
	var b bytes.Buffer
	writeInternal(&b, reflect.ValueOf(value))
	return b.Bytes()
}

// laterFields are the fields of the Go types that Kubernetes 1.36 does not have.
func laterFields(structName string) []string {
	switch structName {
	case "ConfigMapVolumeSource", "SecretVolumeSource", "DownwardAPIVolumeSource", "ProjectedVolumeSource":
		return []string{"DefaultUser"}
	case "KeyToPath", "DownwardAPIVolumeFile", "ServiceAccountTokenProjection", "ClusterTrustBundleProjection",
		"PodCertificateProjection":
		return []string{"User"}
	case "GRPCAction", "EmptyDirVolumeSource":
		return []string{"Mode"}
	case "HTTPGetAction":
		return []string{"Protocol"}
	case "VolumeMount":
		return []string{"BindMountOptions"}
	}
	return nil
}

// isNumber reports whether a pointer is not one in the internal type.
func isNumber(structName, field string) bool {
	switch structName {
	case "RollingUpdateDeployment", "RollingUpdateDaemonSet":
		return true
	}
	return structName == "RollingUpdateStatefulSetStrategy" && field == "Partition"
}

// Fields of internal types that have another order or another place than those of version v1. The fields of PodSpec
// that its SecurityContext has are those without a place here.
const (
	internalPodSpec = "Volumes InitContainers Containers EphemeralContainers RestartPolicy " +
		"TerminationGracePeriodSeconds ActiveDeadlineSeconds DNSPolicy " +
		"NodeSelector ServiceAccountName AutomountServiceAccountToken NodeName SecurityContext ImagePullSecrets " +
		"Hostname Subdomain SetHostnameAsFQDN " +
		"Affinity SchedulerName Tolerations HostAliases PriorityClassName Priority PreemptionPolicy DNSConfig " +
		"ReadinessGates RuntimeClassName Overhead " +
		"EnableServiceLinks TopologySpreadConstraints OS SchedulingGates ResourceClaims Resources HostnameOverride " +
		"SchedulingGroup"
	internalHostFields = "HostNetwork HostPID HostIPC ShareProcessNamespace HostUsers"
	internalSecurity   = "SELinuxOptions WindowsOptions RunAsUser RunAsGroup RunAsNonRoot SupplementalGroups " +
		"SupplementalGroupsPolicy FSGroup FSGroupChangePolicy Sysctls SeccompProfile AppArmorProfile " +
		"SELinuxChangePolicy"
	internalVolumeSource = "HostPath EmptyDir GCEPersistentDisk AWSElasticBlockStore GitRepo Secret NFS ISCSI " +
		"Glusterfs PersistentVolumeClaim RBD Quobyte " +
		"FlexVolume Cinder CephFS Flocker DownwardAPI FC AzureFile ConfigMap VsphereVolume AzureDisk " +
		"PhotonPersistentDisk Projected PortworxVolume ScaleIO " +
		"StorageOS CSI Ephemeral Image"
)

func writeInternal(b *bytes.Buffer, v reflect.Value) {
	if !v.IsValid() {
		b.WriteString("null")
		return
	}
	switch t := v.Type(); {
	case t.Kind() == reflect.Pointer && !v.IsNil():
		writeInternal(b, v.Elem())
	case t.Kind() == reflect.Slice && !v.IsNil() && t.Elem().Kind() != reflect.Uint8:
		b.WriteByte('[')
		for i := range v.Len() {
			if i > 0 {
				b.WriteByte(',')
			}
			writeInternal(b, v.Index(i))
		}
		b.WriteByte(']')
	case t.Kind() == reflect.Struct && strings.HasPrefix(t.PkgPath(), "k8s.io/api/"):
		b.WriteByte('{')
		writeFields(b, v)
		b.WriteByte('}')
	default:
		text, err := json.Marshal(v.Interface())
		if err != nil {
			text = []byte("null")
		}
		b.Write(text)
	}
}

// writeFields writes the fields of a struct, without braces.
func writeFields(b *bytes.Buffer, v reflect.Value) {
	name := v.Type().Name()
	var order []string
	switch name {
	case "PodSpec":
		order = strings.Fields(internalPodSpec)
	case "PodSecurityContext":
		order = strings.Fields(internalSecurity)
	case "VolumeSource":
		order = strings.Fields(internalVolumeSource)
	default:
		later := laterFields(name)
		for i := range v.NumField() {
			if f := v.Type().Field(i).Name; !slices.Contains(later, f) {
				order = append(order, f)
			}
		}
	}
	separate := func() {
		if last := b.Bytes()[b.Len()-1]; last != '{' && last != ',' {
			b.WriteByte(',')
		}
	}
	write := func(v reflect.Value, name string) {
		separate()
		b.WriteString(`"` + name + `":`)
		if value := v.FieldByName(name); isNumber(v.Type().Name(), name) && value.IsNil() {
			b.WriteString("0")
		} else {
			writeInternal(b, value)
		}
	}
	for _, f := range order {
		field, _ := v.Type().FieldByName(f)
		switch value := v.FieldByName(f); {
		case field.Anonymous && strings.HasPrefix(field.Type.PkgPath(), "k8s.io/api/"):
			separate()
			writeFields(b, value)
		case field.Anonymous: // metadata
			text, err := json.Marshal(value.Interface())
			if inner := bytes.Trim(text, "{}"); err == nil && len(bytes.TrimSpace(inner)) > 0 {
				separate()
				b.Write(bytes.TrimSuffix(bytes.TrimPrefix(text, []byte("{")), []byte("}")))
			}
		case name == "PodSpec" && f == "SecurityContext" && !value.IsNil():
			separate()
			b.WriteString(`"SecurityContext":{`)
			for f := range strings.FieldsSeq(internalHostFields) {
				write(v, f)
			}
			separate()
			writeFields(b, value.Elem())
			b.WriteByte('}')
		default:
			write(v, f)
		}
	}
}
