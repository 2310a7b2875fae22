package apiserver

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Placeholders in the fields of a shape.
const (
	ownerPlaceholder = "OWNER-UID"
	addrPlaceholder  = "POD-IP"
)

// managerFields is the FieldsV1 of what kube-controller-manager has set in a shape's Pods.
func managerFields(s *shape) string {
	var b strings.Builder
	b.WriteString(`{"f:metadata":{"f:annotations":{".":{}`)
	for _, name := range []string{"prometheus.io/port", "prometheus.io/scrape"} {
		b.WriteString(`,"f:` + name + `":{}`)
	}
	b.WriteString(
		`},"f:generateName":{},"f:labels":{".":{},"f:app.kubernetes.io/instance":{},"f:app.kubernetes.io/name":{},` +
			`"f:app":{},` +
			`"f:pod-template-hash":{},"f:team":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"` + ownerPlaceholder +
			`\"}":{}}},` +
			`"f:spec":{"f:containers":{`)
	for i := range s.containers {
		if i > 0 {
			b.WriteByte(',')
		}
		containerFields(&b, &s.containers[i])
	}
	b.WriteString(
		`},"f:dnsPolicy":{},"f:enableServiceLinks":{},"f:restartPolicy":{},"f:schedulerName":{},` +
			`"f:securityContext":{},` +
			`"f:serviceAccount":{},"f:serviceAccountName":{},"f:terminationGracePeriodSeconds":{},"f:volumes":{".":{}`)
	for _, volume := range s.volumes {
		b.WriteString(`,"k:{\"name\":\"` + volume.Name + `\"}":{".":{},`)
		switch {
		case volume.ConfigMap != nil:
			b.WriteString(`"f:configMap":{".":{},"f:defaultMode":{},"f:name":{}}`)
		case volume.Secret != nil:
			b.WriteString(`"f:secret":{".":{},"f:defaultMode":{},"f:secretName":{}}`)
		default:
			b.WriteString(`"f:emptyDir":{}`)
		}
		b.WriteString(`,"f:name":{}}`)
	}
	b.WriteString(`}}}`)
	return b.String()
}

func containerFields(b *strings.Builder, c *corev1.Container) {
	b.WriteString(`"k:{\"name\":\"` + c.Name + `\"}":{".":{},`)
	if c.Args != nil {
		b.WriteString(`"f:args":{},`)
	}
	b.WriteString(`"f:env":{".":{}`)
	for _, env := range c.Env {
		b.WriteString(`,"k:{\"name\":\"` + env.Name + `\"}":{".":{},"f:name":{},`)
		switch {
		case env.ValueFrom == nil:
			b.WriteString(`"f:value":{}}`)
		case env.ValueFrom.SecretKeyRef != nil:
			b.WriteString(`"f:valueFrom":{".":{},"f:secretKeyRef":{}}}`)
		default:
			b.WriteString(`"f:valueFrom":{".":{},"f:fieldRef":{}}}`)
		}
	}
	b.WriteString(`},"f:image":{},"f:imagePullPolicy":{},`)
	probe :=
		`{".":{},"f:failureThreshold":{},"f:httpGet":{".":{},"f:path":{},"f:port":{},"f:scheme":{}},` +
			`"f:periodSeconds":{},` +
			`"f:successThreshold":{},"f:timeoutSeconds":{}},`
	if c.LivenessProbe != nil {
		b.WriteString(`"f:livenessProbe":` + probe)
	}
	b.WriteString(
		`"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":8080,\"protocol\":\"TCP\"}":{".":{},` +
			`"f:containerPort":{},"f:name":{},"f:protocol":{}}},`)
	if c.ReadinessProbe != nil {
		b.WriteString(`"f:readinessProbe":` + probe)
	}
	b.WriteString(
		`"f:resources":{".":{},"f:limits":{".":{},"f:memory":{}},"f:requests":{".":{},"f:cpu":{},"f:memory":{}}},` +
			`"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}`)
	if len(c.VolumeMounts) > 0 {
		b.WriteString(`,"f:volumeMounts":{".":{}`)
		for _, mount := range c.VolumeMounts {
			b.WriteString(`,"k:{\"mountPath\":\"` + mount.MountPath + `\"}":{".":{},"f:mountPath":{},"f:name":{}`)
			if mount.ReadOnly {
				b.WriteString(`,"f:readOnly":{}`)
			}
			b.WriteByte('}')
		}
		b.WriteByte('}')
	}
	b.WriteByte('}')
}

// kubeletFields is the FieldsV1 of what the kubelet has set in a Pod's status.
func kubeletFields() string {
	var b strings.Builder
	b.WriteString(`{"f:status":{"f:conditions":{`)
	for i, name := range conditionTypes() {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`"k:{\"type\":\"` + string(name) +
			`\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}}`)
	}
	b.WriteString(
		`},"f:containerStatuses":{},"f:hostIP":{},"f:hostIPs":{},"f:phase":{},"f:podIP":{},"f:podIPs":{".":{},` +
			`"k:{\"ip\":\"` + addrPlaceholder + `\"}":{".":{},"f:ip":{}}},"f:startTime":{}}}`)
	return b.String()
}

func conditionTypes() []corev1.PodConditionType {
	return []corev1.PodConditionType{
		"PodReadyToStartContainers", corev1.PodInitialized, corev1.PodReady,
		corev1.ContainersReady, corev1.PodScheduled,
	}
}
