{{/* The release's name, which every object's name begins with. */}}
{{- define "tidemark.fullname" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name }}{{ end -}}
{{- end }}

{{- define "tidemark.image" -}}
{{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "tidemark.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tidemark.labels" -}}
{{ include "tidemark.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* The account of a layer; call with (list . layer). */}}
{{- define "tidemark.account" -}}
{{- $root := index . 0 }}{{- $layer := index . 1 }}{{- $account := (index $root.Values $layer).serviceAccount -}}
{{- if $account.create }}{{ $account.name | default (printf "%s-%s" (include "tidemark.fullname" $root) $layer) }}{{ else }}{{ required (printf "%s.serviceAccount.name: needed if create is false" $layer) $account.name }}{{ end -}}
{{- end }}

{{/*
What runs, as JSON: {"jobs": [{name, stream, layer, kind, options}]}. A stream's options replace those of the layer key by key.
*/}}
{{- define "tidemark.processes" -}}
{{- $root := . }}{{- $found := list }}
{{- range $stream, $layers := .Values.streams }}
  {{- range $layer, $own := $layers }}
    {{- $name := printf "%s-%s-%s" (include "tidemark.fullname" $root) ($stream | replace "_" "-") $layer }}
    {{- if gt (len $name) 52 }}
      {{- fail (printf "streams.%s.%s: the name %s has more than 52 characters; install the chart under a shorter name" $stream $layer $name) }}
    {{- end }}
    {{- $options := mergeOverwrite (deepCopy (index $root.Values $layer)) (deepCopy ($own | default dict)) }}
    {{- $found = append $found (dict "name" $name "stream" $stream "layer" $layer "options" $options) }}
  {{- end }}
{{- end }}
{{- dict "items" $found | toJson }}
{{- end }}

{{/* "true" if some process has executors of its own. */}}
{{- define "tidemark.clustered" -}}
{{- range (include "tidemark.processes" . | fromJson).items }}{{ if .options.cluster }}true{{ end }}{{ end -}}
{{- end }}

{{- define "tidemark.podSecurity" -}}
runAsNonRoot: true
runAsUser: 1000
runAsGroup: 1000
fsGroup: 1000
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "tidemark.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}
