{{/* Base of all names: the release, with the chart's name in it, and what it installs. 54 bytes at most, so that the
longest suffix still fits into a label. */}}
{{- define "powercontext.fullname" -}}
{{- $base := .Release.Name -}}
{{- if not (contains "powercontext" $base) }}{{ $base = printf "%s-powercontext" $base }}{{ end -}}
{{- if not (hasSuffix "operator" $base) }}{{ $base = printf "%s-operator" $base }}{{ end -}}
{{- .Values.fullnameOverride | default $base | trunc 54 | trimSuffix "-" -}}
{{- end }}

{{- define "powercontext.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "powercontext.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name -}}
{{- end -}}
{{- end }}

{{- define "powercontext.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* What selects the operator's pods. No version is among it: a selector can never change. The roles' pods have another
`name`, so nothing that selects them meets the operator. */}}
{{- define "powercontext.selector" -}}
app.kubernetes.io/name: powercontext-operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: operator
{{- end }}

{{/* Labels of every object: (dict "root" $ "component" "…" "more" dict). */}}
{{- define "powercontext.labels" -}}
{{- $labels := dict
  "app.kubernetes.io/name" "powercontext-operator"
  "app.kubernetes.io/instance" .root.Release.Name
  "app.kubernetes.io/component" (.component | default "operator")
  "app.kubernetes.io/part-of" "powercontext"
  "app.kubernetes.io/version" .root.Chart.AppVersion
  "app.kubernetes.io/managed-by" .root.Release.Service
  "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-")
-}}
{{- merge $labels (.more | default dict) .root.Values.commonLabels | toYaml -}}
{{- end }}

{{/* `annotations:` with what is given and what is common; nothing at all where both are empty. */}}
{{- define "powercontext.annotations" -}}
{{- with merge (dict) (.more | default dict) .root.Values.commonAnnotations -}}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end }}

{{/* Name, namespace, labels and annotations: (dict "root" $ "suffix" "" "namespace" "" "component" "" "labels" dict
"annotations" dict). `cluster` in place of a namespace: it has none. */}}
{{- define "powercontext.metadata" -}}
name: {{ printf "%s%s" (include "powercontext.fullname" .root) (.suffix | default "") | quote }}
{{- if ne (.namespace | default "") "cluster" }}
namespace: {{ .namespace | default .root.Release.Namespace | quote }}
{{- end }}
labels:
  {{- include "powercontext.labels" (dict "root" .root "component" .component "more" .labels) | nindent 2 }}
{{- with include "powercontext.annotations" (dict "root" .root "more" .annotations) }}
{{ . }}
{{- end }}
{{- end }}

{{/* Pods of the operator and of the test are alike in this. */}}
{{- define "powercontext.pod" -}}
serviceAccountName: {{ include "powercontext.serviceAccountName" . | quote }}
automountServiceAccountToken: true
# The Service's variables would look like the operator's own settings.
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end }}

{{- define "powercontext.container" -}}
image: {{ include "powercontext.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
command: [/usr/local/bin/powercontext-operator]
{{- with .Values.securityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "powercontext.env" -}}
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
{{- with .Values.metrics.tokenSecretRef }}
- name: POWERCONTEXT_OPERATOR_METRICS_TOKEN
  valueFrom:
    secretKeyRef:
      name: {{ .name | quote }}
      key: {{ .key | quote }}
{{- end }}
{{- end }}

{{/* Namespaces that get a Role each. */}}
{{- define "powercontext.namespaces" -}}
{{- if eq .Values.scope "namespaces" }}{{ uniq .Values.namespaces | toJson }}{{ else }}[]{{ end }}
{{- end }}

{{/* Who owns the definition: `off` (not asked for), `release` (this one, also where there is none yet), `cluster` (it is
there, and of no release), or NAMESPACE/NAME of another release. Without a cluster to look at, as in `helm template`,
there is none yet. Ownership is what Helm itself goes by; somebody else's definition would fail the installation. */}}
{{- define "powercontext.crdOwner" -}}
{{- if not .Values.crds.install -}}
off
{{- else -}}
{{- $found := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "powercontextdeployments.powercontext.io" -}}
{{- $annotations := ($found.metadata).annotations | default dict -}}
{{- $name := get $annotations "meta.helm.sh/release-name" -}}
{{- $namespace := get $annotations "meta.helm.sh/release-namespace" -}}
{{- if or (not $found) (and (eq $name .Release.Name) (eq $namespace .Release.Namespace)) -}}
release
{{- else if $name -}}
{{ $namespace }}/{{ $name }}
{{- else -}}
cluster
{{- end -}}
{{- end -}}
{{- end }}

{{/* What the schema cannot say, or not in words that help. */}}
{{- define "powercontext.check" -}}
{{- $values := .Values -}}
{{- if and (eq $values.scope "namespaces") (not $values.namespaces) -}}
{{- fail "namespaces: scope is `namespaces`, so name at least one" -}}
{{- end -}}
{{- if and (eq $values.scope "cluster") $values.namespaces -}}
{{- fail "namespaces: scope is `cluster`, so no namespace may be named; did you mean scope `namespaces`?" -}}
{{- end -}}
{{- if and (eq $values.scope "namespaces") $values.rbac.aggregate -}}
{{- fail "rbac.aggregate: needs scope `cluster`, because it makes ClusterRoles" -}}
{{- end -}}
{{- if and (not $values.serviceAccount.create) (not $values.serviceAccount.name) -}}
{{- fail "serviceAccount.name: serviceAccount.create is false, so name one that exists" -}}
{{- end -}}
{{- range $values.extraEnv -}}
{{- if has .name (list "POD_NAME" "POD_NAMESPACE" "POWERCONTEXT_OPERATOR_METRICS_TOKEN") -}}
{{- fail (printf "extraEnv: %s is set by the chart" .name) -}}
{{- end -}}
{{- end -}}
{{- end }}
