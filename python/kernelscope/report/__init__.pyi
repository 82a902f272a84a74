from kernelscope.report.asked import asked_tables as asked_tables
from kernelscope.report.conversion import convert as convert
from kernelscope.report.rendering import FORMATS as FORMATS
from kernelscope.report.rendering import page_views as page_views
from kernelscope.report.rendering import render as render
