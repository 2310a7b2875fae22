package hooks

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v1"
	v2 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v2"
	"github.com/evenkeel-go/evenkeel/webhook"
)

// Conversion returns the conversion of WebApps between v1 and v2, which is the hub.
func Conversion() webhook.Hook {
	return webhook.Converting(v1.Resource+"."+v1.Group, webhook.Spoke(toV2, toV1))
}

// region conversion

// toV2 never fails: each object that is valid in v1 is valid in v2.
func toV2(from *v1.WebApp, to *v2.WebApp) error {
	to.Spec = v2.WebAppSpec{
		App:      v2.App{Image: from.Spec.Image, Port: from.Spec.Port, Env: from.Spec.Config},
		Replicas: from.Spec.Replicas,
		Host:     from.Spec.Host,
		Mode:     v2.Running,
	}
	if from.Spec.Suspend {
		to.Spec.Mode = v2.Suspended
	}
	if contact := from.Annotations[v2.ContactAnnotation]; contact != "" {
		to.Spec.Contact = contact
		delete(to.Annotations, v2.ContactAnnotation)
	}
	to.Status = v2.WebAppStatus(from.Status) // this compiles as long as both have the same fields
	return nil
}

// toV1 keeps the contact, which v1 lacks, in an annotation.
func toV1(from *v2.WebApp, to *v1.WebApp) error {
	to.Spec = v1.WebAppSpec{
		Image:    from.Spec.App.Image,
		Port:     from.Spec.App.Port,
		Config:   from.Spec.App.Env,
		Replicas: from.Spec.Replicas,
		Host:     from.Spec.Host,
		Suspend:  from.Spec.Mode == v2.Suspended,
	}
	if from.Spec.Contact != "" {
		metav1.SetMetaDataAnnotation(&to.ObjectMeta, v2.ContactAnnotation, from.Spec.Contact)
	}
	to.Status = v1.WebAppStatus(from.Status)
	return nil
}

// endregion
