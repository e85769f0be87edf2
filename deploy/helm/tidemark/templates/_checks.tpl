{{/*
What a schema can't say with a reason. Patterns as in include/tidemark/connections/catalog.py and kafka_names.py.
*/}}
{{- define "tidemark.secretName" -}}
{{- $name := regexReplaceAll "credentials?-provider|token[.-](endpoint|refresh|exchange|expires)|token-type|credentials?-uri" . "" -}}
{{- if regexMatch "(?i)secret|password|passphrase|token|access[._-]?key|credential|authorization|api[._-]?key|header[.]|jaas|ssl[.]key[.]pem" $name }}true{{ end -}}
{{- end }}

{{- define "tidemark.checks" -}}
{{- $values := .Values }}
{{- if not $values.settings.bucket }}{{ fail "settings.bucket: missing; it is the bucket of the archive and of the tables" }}{{ end }}
{{- range $name, $value := $values.settings }}
  {{- if has $name (list "streams_dir" "jars_dir" "spark_master") }}
    {{- fail (printf "settings.%s: the chart sets it; see definitions, image, and cores and cluster of each layer" $name) }}
  {{- end }}
  {{- include "tidemark.checkSecret" (list (printf "settings.%s" $name) $name $value $values.secrets) }}
{{- end }}
{{- range $name, $value := $values.env }}
  {{- if hasPrefix "TIDEMARK_" $name }}{{ fail (printf "env.%s: it is a setting; set settings.%s" $name (trimPrefix "TIDEMARK_" $name | lower)) }}{{ end }}
  {{- if include "tidemark.secretName" $name }}{{ fail (printf "env.%s: it has a secret's name, and everyone who may read pods would see it" $name) }}{{ end }}
{{- end }}
{{- range $stream, $layers := $values.streams }}
  {{- if and $values.definitions (not (hasKey $values.definitions (printf "%s.yaml" $stream))) }}
    {{- fail (printf "streams.%s: definitions has no %s.yaml, and replaces the image's folder" $stream $stream) }}
  {{- end }}
{{- end }}
{{- range (include "tidemark.processes" . | fromJson).items }}
  {{- if and (has .layer (list "reconcile" "maintenance")) (not .options.schedule) }}
    {{- fail (printf "streams.%s.%s.schedule: missing; such as \"30 0 * * *\"" .stream .layer) }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Call with (list place name value secrets). The message never has the value. */}}
{{- define "tidemark.checkSecret" -}}
{{- $place := index . 0 }}{{- $value := index . 2 }}{{- $secrets := index . 3 }}
{{- if kindIs "map" $value }}
  {{- range $name, $inner := $value }}
    {{- include "tidemark.checkSecret" (list (printf "%s.%s" $place $name) $name $inner $secrets) }}
  {{- end }}
{{- else }}
  {{- $text := toString $value }}
  {{- if and (include "tidemark.secretName" (index . 1)) (not (hasPrefix "file:/" $text)) }}
    {{- fail (printf "%s: a secret; name it in secrets, and write file:/run/secrets/tidemark/NAME here" $place) }}
  {{- end }}
  {{- if regexMatch "(?i)//[^/@]*:[^/@]*@|[?&;][^=&;]*(password|passphrase|secret|token)[^=&;]*=" $text }}
    {{- fail (printf "%s: a URL with a password; set that in a property of its own" $place) }}
  {{- end }}
  {{- if and (hasPrefix "file:/run/secrets/tidemark/" $text) (not (hasKey $secrets (trimPrefix "file:/run/secrets/tidemark/" $text))) }}
    {{- fail (printf "%s: secrets has no entry for this file" $place) }}
  {{- end }}
{{- end }}
{{- end }}
